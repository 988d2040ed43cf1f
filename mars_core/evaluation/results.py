"""Results read again that a command printed as JSON (`--json`)."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from mars_core.errors import MarsError

R = TypeVar("R")


def read_result(path: Path, kind: type[R], command: str) -> R:
    """What `command` printed into a file, gzipped where its name ends in .gz.

    kind: the dataclass that it printed. Raises MarsError for anything else, and where the file
    cannot be read.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "it is no gzip file, or cut"
        raise MarsError(f"{path} cannot be read: {why}") from None
    try:
        return TypeAdapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise MarsError(f"{path} is not what `{command}` prints: {place}: {first['msg']}") from None
