"""Files from the Hugging Face hub: safetensors, JSON and tokenizers, never code or pickles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mars_core.errors import MarsError
from mars_core.models.progress import Progress
from mars_core.models.words import is_disk_full, one_line

SAFE_FILES = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model")
CACHE_VARIABLE = "HF_HOME"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubUnavailableError(Exception):
    """The hub did not give the files; the message is its reason in a few words."""


def is_hub_id(text: str) -> bool:
    """Whether `text` looks like `org/name`."""
    return _HUB_ID.fullmatch(text) is not None


def snapshot(hub_id: str, progress: Progress, files: Sequence[str] = SAFE_FILES) -> Path:
    """The folder of `hub_id` in the hub's own cache, downloaded if needed (and possible).

    files: patterns of those that are wanted. Raises HubUnavailableError; OSError when the disk is
    full.
    """
    from huggingface_hub import snapshot_download

    progress("download", 0, None)
    bar = _reporting_bar(progress)
    try:
        folder = snapshot_download(
            hub_id,
            allow_patterns=list(files),
            ignore_patterns=["*/*"],
            tqdm_class=bar,
        )
    except Exception as error:
        # the hub client raises its own, httpx's and OS errors: to a user all mean "not to be had"
        if is_disk_full(error):
            raise
        raise HubUnavailableError(_reason(error)) from error
    return Path(folder)


def cache_folder() -> Path:
    """Where the hub's client keeps what it downloads."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def is_cached(hub_id: str) -> bool:
    """Whether weights of `hub_id` are in the hub's cache: all of them, or a part."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id, "config.json")
    return isinstance(found, str) and any(Path(found).parent.glob("*.safetensors"))


def required(hub_id: str, what: str, progress: Progress, files: Sequence[str] = SAFE_FILES) -> Path:
    """`snapshot` for something a person named; MarsError when it cannot be had."""
    try:
        return snapshot(hub_id, progress, files)
    except HubUnavailableError as error:
        raise MarsError(f"there is no folder {what} here, and {error}: check the name") from error
    except OSError as error:
        raise MarsError(
            f"the disk filled up while {what} was downloaded: make room or point {CACHE_VARIABLE} "
            "elsewhere"
        ) from error


def _reason(error: Exception) -> str:
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return "its owner asks for a login first"
    if isinstance(error, (RepositoryNotFoundError, HFValidationError)):
        return "the hub has no such model"
    if isinstance(error, (LocalEntryNotFoundError, ConnectionError, TimeoutError)):
        return "no connection to the hub and not in its cache"
    return f"the hub client failed: {one_line(error, 80)}"


def _reporting_bar(progress: Progress) -> type[tqdm]:
    """A tqdm that draws nothing and passes bytes on.

    The hub opens two bars for bytes (received, written): the one that is further is reported.
    """
    furthest = 0

    class ReportingBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.in_bytes = kwargs.get("unit") == "B"
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            nonlocal furthest
            self.n += int(n or 0)
            if self.in_bytes and self.n > furthest:
                furthest = self.n
                progress("download", furthest, int(self.total) if self.total else None)

    return ReportingBar
