"""Folders that are whole or not there: written under another name, then renamed. No torch."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mars_core.errors import MarsError
from mars_core.models.words import is_disk_full, one_line

KEEP = 2
_NAME = re.compile(r"checkpoint-(\d+)")


class Checkpoints:
    """The checkpoints of a run, `checkpoint-STEP` in `folder`; the last KEEP are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Path]:
        """Whole checkpoints, oldest first."""
        found = {
            int(match[1]): path
            for path in self.folder.glob("checkpoint-*")
            if (match := _NAME.fullmatch(path.name))
        }
        return [found[step] for step in sorted(found)]

    def last(self) -> Path | None:
        """The newest whole checkpoint."""
        return next(reversed(self.all()), None)

    def name(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    @property
    def draft(self) -> Path:
        """The folder in which the next one is being written."""
        return self.folder / ".draft"

    def failed(self, error: BaseException) -> MarsError:
        """The error to raise when one could not be written; its draft is removed."""
        shutil.rmtree(self.draft, ignore_errors=True)
        last = self.last()
        kept = f"{last} is intact, go on with --resume" if last else "there is none yet"
        return MarsError(f"a checkpoint could not be written: {reason(error)}; {kept}")

    def publish(self, step: int) -> None:
        """Make the draft of `step` a checkpoint, and remove those that are not kept."""
        target = self.name(step)
        shutil.rmtree(target, ignore_errors=True)
        (self.draft / target.name).rename(target)
        shutil.rmtree(self.draft, ignore_errors=True)
        for old in self.all()[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def alone(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Hold a lock in a folder; MarsError if another process does, or it cannot be written."""
    lock = FileLock(folder / name, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise MarsError(f"another run is writing to {folder}: wait, or name another") from None
    except OSError as error:
        raise unwritable(folder, error) from None
    try:
        yield
    finally:
        lock.release()


def reason(error: BaseException) -> str:
    """Why something could not be written, in a few words."""
    return "the disk is full" if is_disk_full(error) else one_line(error, 120)


def unwritable(path: Path, error: OSError) -> MarsError:
    """The error to raise for a file or folder that cannot be written."""
    return MarsError(f"{path} cannot be written: {reason(error)}")


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def damaged(checkpoint: Path) -> MarsError:
    """The error to raise for a checkpoint that cannot be read."""
    return MarsError(f"{checkpoint} is damaged: remove it to go on from the one before")


@contextlib.contextmanager
def replacing(folder: Path, remains: Callable[[], str] = lambda: "") -> Iterator[Path]:
    """A new folder that takes the place of `folder` when all went well, and vanishes if not.

    Raises MarsError, with what `remains` adds, when it cannot be written.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    before = folder.with_name(f".{folder.name}.before")
    try:
        for path in (draft, before):
            shutil.rmtree(path, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        if folder.exists():
            folder.rename(before)
        draft.rename(folder)
        shutil.rmtree(before, ignore_errors=True)
    except MarsError:
        raise
    except Exception as error:
        # safetensors, torch and the file system each have their own errors for a full disk
        shutil.rmtree(draft, ignore_errors=True)
        raise MarsError(f"{folder} could not be written: {reason(error)}{remains()}") from error
