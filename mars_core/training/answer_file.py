"""The files a distillation writes, and how it goes on after it was interrupted. No torch.

`OUT.jsonl` holds the answers, `OUT.dropped.jsonl` what was not worth keeping, `OUT.about.json`
where they come from. The first two only grow. Every whole line in them is an answered prompt that
is not asked again; a last line without its end (the machine went down, the disk was full) is cut
off before the work goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mars_core.errors import MarsError
from mars_core.models.words import expanded, one_line

# of `about`: what two runs into the same file must have in common
IDENTITY = ("model", "settings", "system")


@dataclass(slots=True)
class Tally:
    """What is in the two files. reasons: why how many rows were dropped."""

    rows: int = 0
    finished: int = 0
    tokens: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def answered(self) -> int:
        """Prompts answered, rows dropped among them."""
        return self.rows + sum(self.reasons.values())

    def add(self, row: dict[str, Any]) -> None:
        self.tokens += int(row.get("tokens", 0))
        if reason := row.get("dropped"):
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        else:
            self.rows += 1
            self.finished += bool(row.get("finished"))

    def share(self, reason: str) -> float:
        """The share of all answers that was dropped for `reason`."""
        return self.reasons.get(reason, 0) / self.answered if self.answered else 0.0


class AnswerFile:
    """OUT and its two companions.

    done: ids of the prompts that are answered. Opening raises MarsError where the file was made
    by other weights or settings than `about` says, or by something else altogether.
    """

    def __init__(self, out: Path, about: dict[str, Any]) -> None:
        out = expanded(out)
        if out.suffix != ".jsonl":
            raise MarsError(f"{out.name or out} must end in .jsonl; compress it when it is done")
        self.out = out
        self.dropped = out.with_suffix(".dropped.jsonl")
        self.about_path = out.with_suffix(".about.json")
        self.done: set[str] = set()
        self.tally = Tally()
        self._about = about
        try:
            if self.out.exists():
                self._check_same_origin()
            for path in (self.dropped, self.out):
                self._resume(path)
            self.write_about()
        except OSError as error:
            raise unwritable(error, out) from None

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add a batch of answers, those with a `dropped` reason to the file for them."""
        batch = list(rows)
        try:
            append_lines(self.dropped, [row for row in batch if "dropped" in row])
            append_lines(self.out, [row for row in batch if "dropped" not in row])
            self._count(batch)
            self.write_about()
        except OSError as error:
            raise unwritable(error, self.out) from None

    def write_about(self) -> None:
        """Say where the answers come from, and how many there are by now."""
        tally = self.tally
        counts = {
            "answered": tally.answered,
            "rows": tally.rows,
            "finished": tally.finished,
            "tokens": tally.tokens,
            "dropped": tally.reasons,
            "looping_share": round(tally.share("looping"), 4),
        }
        text = json.dumps({**self._about, "counts": counts}, indent=1, ensure_ascii=False) + "\n"
        draft = self.about_path.with_suffix(".json.tmp")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.about_path)

    def _check_same_origin(self) -> None:
        try:
            before = json.loads(self.about_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            before = None
        if not isinstance(before, dict):
            raise MarsError(
                f"{self.out.name} exists and {self.about_path.name} does not say how it was made; "
                "choose another name"
            )
        for name in IDENTITY:
            if before.get(name) != self._about.get(name):
                raise MarsError(
                    f"{self.out.name} was made with another {difference(name, before, self._about)}"
                    "; choose another name, or go on as before"
                )

    def _resume(self, path: Path) -> None:
        """Take in what is in `path` already, its last line cut off if it is not whole."""
        if not path.exists():
            return
        whole = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                self._count([answered_row(line, number, path)])
        os.truncate(path, whole)

    def _count(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self.done.add(row["id"])
            self.tally.add(row)


def answered_row(line: bytes, number: int, path: Path) -> dict[str, Any]:
    """The row of a line that an earlier run wrote."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise MarsError(f"{path.name}, line {number} is no answer with an id; choose another name")
    if not isinstance(row.get("tokens", 0), int) or not isinstance(row.get("dropped", ""), str):
        raise MarsError(f"{path.name}, line {number} was not written here; choose another name")
    return row


def append_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Add rows to the end of a JSON Lines file in one write, and wait until they are on disk."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if not text:
        return
    with path.open("ab") as file:
        file.write(text.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def difference(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Which part of `name` differs, and how: "repetition_penalty (1.0, now 1.1)"."""
    old, new = before.get(name), now.get(name)
    if isinstance(old, dict) and isinstance(new, dict):
        for part, was, is_ in differing(old, new):
            return f"{part} ({one_line(was, 40)}, now {one_line(is_, 40)})"
    return f"{name} ({one_line(old, 40)}, now {one_line(new, 40)})"


def differing(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for part in {**old, **new}:
        if old.get(part) != new.get(part):
            yield part, old.get(part), new.get(part)


def unwritable(error: OSError, path: Path) -> MarsError:
    return MarsError(f"{path.name or path} cannot be written: {error.strerror}")
