"""Where the files of `assets/` are."""

from __future__ import annotations

from pathlib import Path

from mars_core.errors import MarsError

PACKAGE = Path(__file__).resolve().parent


def assets_dir(package: Path = PACKAGE) -> Path:
    """The `assets` folder: a checkout's own, else the copy that a wheel carries.

    A checkout wins, so that an editable install shows what is being edited.
    """
    checkout = package.parent / "assets"
    if (package.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    packed = package / "_assets"
    if packed.is_dir():
        return packed
    raise MarsError("the assets folder is missing from this install: run from a checkout instead")
