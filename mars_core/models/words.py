"""Library errors in words: one line, without addresses. No torch."""

from __future__ import annotations

import errno
import re

MAX_LENGTH = 200
_ADDRESS = re.compile(r"\w+://\S+|host='[^']*'|port=\d+")
_SPACE = re.compile(r"\s+")


def one_line(text: object, limit: int = MAX_LENGTH) -> str:
    """`text` on one line, addresses left out, cut to at most `limit` characters."""
    words = _SPACE.sub(" ", _ADDRESS.sub("(address)", str(text))).strip().rstrip(".")
    return words if len(words) <= limit else words[: limit - 3].rstrip() + "..."


def is_disk_full(error: BaseException) -> bool:
    """Whether `error` says that the disk is full (safetensors reports it only in its text)."""
    full = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    if isinstance(error, OSError) and error.errno in full:
        return True
    return "no space left" in str(error).lower() or "os error 28" in str(error)
