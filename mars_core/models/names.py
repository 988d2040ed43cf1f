"""Which names a model can be asked for by. No torch."""

from __future__ import annotations

from mars_core.errors import MarsError
from mars_core.models import catalog, hub
from mars_core.models.words import folder_at, one_line


def check_known(name: str) -> None:
    """Raise MarsError unless `name` is in the catalogue, a folder, or looks like a hub id."""
    if catalog.find(name) or folder_at(name) or hub.is_hub_id(name):
        return
    if name.startswith((".", "~", "/")) or name.count("/") > 1:
        raise MarsError(f"there is no folder {one_line(name, 80)!r} here")
    raise MarsError(
        f"unknown model {one_line(name, 80)!r}: known are {', '.join(catalog.names())}, a "
        f"folder with config.json, or a hub id (org/name)"
    )
