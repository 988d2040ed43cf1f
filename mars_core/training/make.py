"""`mars make`: data made to order: everyday prompts for `mars distill`, solved problems, sums."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mars_core.config import MAX_SEED, check_choice, check_range
from mars_core.errors import MarsError
from mars_core.models.words import expanded
from mars_core.training.answer_file import unwritable
from mars_core.training.arithmetic import sum_rows, training_examples
from mars_core.training.everyday import everyday_prompts

What = Literal["everyday", "arithmetic", "sums"]


Rows = list[dict[str, Any]]
MAKERS: dict[What, Callable[[int, int], Rows]] = {
    "everyday": everyday_prompts,
    "arithmetic": training_examples,
    "sums": sum_rows,
}


@dataclass(frozen=True, slots=True)
class MakeConfig:
    """what: "everyday", prompts to be answered; "arithmetic", word problems with their solutions;
    "sums", ten of them in a row and solved.

    out: a `.jsonl` or `.jsonl.gz` file, written anew. n: rows.
    """

    what: What
    out: Path
    n: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("what to make", self.what, What)
        check_range("n", self.n, 1, 10**6, whole=True)
        check_range("seed", self.seed, 0, MAX_SEED, whole=True)


def make(config: MakeConfig) -> int:
    """Write the rows; how many. The same settings give the same file, byte for byte."""
    rows = MAKERS[config.what](config.seed, config.n)
    write_rows(config.out, rows)
    return len(rows)


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write JSON Lines, gzipped for a name that ends in .gz; whole or not at all."""
    path = expanded(path).resolve()  # a link stays one
    if path.exists() and not path.is_file():
        raise MarsError(f"{path.name or path} is no file: name one to be written")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    data = text.encode("utf-8")
    if path.suffix == ".gz":
        data = compressed(data)
    draft = path.with_name(f"{path.name}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise unwritable(error, path) from None


def compressed(data: bytes) -> bytes:
    """gzip without a time stamp or a name: equal data gives equal bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as file:
        file.write(data)
    return buffer.getvalue()
