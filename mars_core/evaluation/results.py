"""Results read again that a command printed as JSON (`--json`)."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from mars_core.errors import MarsError
from mars_core.training.prompt_file import read_lines

R = TypeVar("R")


def read_result(path: Path, kind: type[R], command: str) -> R:
    """What `command` printed into a file, gzipped where its name ends in .gz.

    kind: the dataclass that it printed. Raises MarsError for anything else, and where the file
    cannot be read.
    """
    data = "".join(read_lines(path))
    try:
        return TypeAdapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise MarsError(f"{path} is not what `{command}` prints: {place}: {first['msg']}") from None
