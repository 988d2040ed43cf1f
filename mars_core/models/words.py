"""What people named and what libraries complained of, in plain words. No torch."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mars_core.errors import MarsError

MAX_LENGTH = 200
_ADDRESS = re.compile(r"\w+://\S+|host='[^']*'|port=\d+")
_SPACE = re.compile(r"\s+")


def one_line(text: object, limit: int = MAX_LENGTH) -> str:
    """`text` on one line, addresses left out, cut to at most `limit` characters."""
    words = _SPACE.sub(" ", _ADDRESS.sub("(address)", str(text))).strip().rstrip(".")
    return words if len(words) <= limit else words[: limit - 3].rstrip() + "..."


def expanded(text: str | Path) -> Path:
    """The path with `~` resolved; MarsError where it names an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise MarsError(f"{one_line(text, 80)} names a user this machine does not know") from None


def folder_at(text: str) -> Path | None:
    """The folder that `text` names, or None; MarsError where one may not even look."""
    path = expanded(text)
    try:
        return path if text and path.is_dir() else None
    except (OSError, ValueError) as error:
        raise MarsError(f"{one_line(text, 80)} cannot be opened: {one_line(error, 80)}") from None


@contextmanager
def compiling(what: str, instead: str) -> Iterator[None]:
    """Raise a MarsError where torch cannot compile in the block."""
    try:
        yield
    except RuntimeError as error:
        # their base class is no public name
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        why = one_line(str(error).partition("\n")[0], 120)
        raise MarsError(f"{what} cannot be compiled ({why}): {instead}") from error


def is_disk_full(error: BaseException) -> bool:
    """Whether `error` says that the disk is full (safetensors reports it only in its text)."""
    full = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    if isinstance(error, OSError) and error.errno in full:
        return True
    return "no space left" in str(error).lower() or "os error 28" in str(error)
