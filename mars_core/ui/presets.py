"""Prompts offered on the page, kept in `assets/presets.json`."""

from __future__ import annotations

import json
from typing import NamedTuple

from mars_core.paths import assets_dir


class Preset(NamedTuple):
    """label: what the button says. prompt: what it fills in."""

    label: str
    prompt: str


def load_presets() -> list[Preset]:
    """The presets in the order they are shown."""
    entries = json.loads((assets_dir() / "presets.json").read_text(encoding="utf-8"))
    return [Preset(entry["label"], entry["prompt"]) for entry in entries]
