"""The log of a run: one JSON object a line, from which lines on a terminal and plots are made.

`kind` "train" is a stretch of steps, "evaluation" the state at one of them. `slots[0]` is the
clean stream's prediction of the next token, `slots[j]` that of mask j. No torch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mars_core.training.checkpoint import unwritable

Entry = dict[str, Any]


# takes a line of text for a person
Report = Callable[[str], None]


def say(text: str) -> None:
    """The report of a command."""
    print(text, file=sys.stderr, flush=True)


class RunLog:
    """The file of a run's log."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: Entry) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise unwritable(self.path, error) from None

    def rewind(self, step: int) -> None:
        """Forget what was logged after `step`: a resumed run makes those steps again."""
        kept = [entry for entry in self.entries() if entry["step"] <= step]
        draft = self.path.with_suffix(".draft")
        try:
            draft.write_text("".join(json.dumps(entry) + "\n" for entry in kept), encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            raise unwritable(self.path, error) from None

    def entries(self) -> list[Entry]:
        """What is logged; lines that are damaged (the machine stopped) are left out."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        return [entry for line in lines[:-1] if (entry := _entry(line))]


def _entry(line: str) -> Entry | None:
    try:
        entry: Entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "step" in entry else None


def slot_entries(counts: Iterable[Sequence[float]]) -> list[Entry]:
    """Per slot, the shares that `objective.slot_counts` counts; None where nothing was counted.

    loss: mean cross-entropy. right: share of predictions that are the label. sure: share above
    .9. right_when_sure: of those.
    """
    return [
        {
            "loss": _share(loss, rows),
            "right": _share(right, rows),
            "sure": _share(sure, rows),
            "right_when_sure": _share(both, sure),
        }
        for rows, right, sure, both, loss in counts
    ]


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 5) if whole else None


def line(entry: Entry) -> str:
    """One entry for a person."""
    parts = [f"step {entry['step']}", f"{entry['minutes']:.1f} min"]
    if entry["kind"] == "train":
        parts += [f"{entry['tokens_per_second']:.0f} tok/s", f"lr {entry['lr']:.1e}"]
    for name in ("ar_loss", "mask_loss"):
        if entry[name] is not None:
            parts.append(f"{name.replace('_', ' ')} {entry[name]:.3f}")
    rights = [slot["right"] for slot in entry["slots"]]
    shown = " ".join("-" if right is None else f"{100 * right:.0f}" for right in rights)
    parts.append(f"right % {shown}")
    if entry.get("tokens_per_forward"):
        parts.append(f"{entry['tokens_per_forward']:.2f} tokens per forward")
    return ("held out: " if entry["kind"] == "evaluation" else "") + ", ".join(parts)
