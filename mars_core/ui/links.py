"""Links that set the page up, as `?prompt=...&tau=0.8`: never anybody's output. No torch."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.race.settings import BatchRaceConfig, RaceConfig
from mars_core.ui.conversation import conversation, conversations

TEXTS = ("prompt", "system")
# in the order of `controls.Inputs`, prompt and system first, of `controls.RaceInputs` and of
# `controls.BatchInputs`
DECODE = (
    "mode", "tau", "block_size", "max_new_tokens", "temperature", "top_p", "repetition_penalty",
    "seed", "metric", "use_last_mask", "drafts",
)  # fmt: skip
RACE = ("lanes", "second_tau", "repeats")
BATCH = ("prompts", "batch_lanes", "rows", "cache_block")
NAMES = (*TEXTS, *DECODE, *RACE, *BATCH)
LISTS = ("lanes", "batch_lanes")
TRUTH = {"true": True, "1": True, "false": False, "0": False}


def settings_of_link(query: Mapping[str, str]) -> dict[str, Any]:
    """What the parameters of an address set, by the names above; others are not ours.

    Raises MarsError for a value that the page would refuse.
    """
    hints: dict[str, Any] = {}
    for kind in (DecodeConfig, RaceConfig, BatchRaceConfig):
        hints |= typing.get_type_hints(kind)
    found = {name: _value(name, query[name], hints.get(name)) for name in NAMES if name in query}

    def given(*names: str) -> dict[str, Any]:
        return {name: found[name] for name in names if name in found}

    decode = DecodeConfig(**given(*DECODE))
    RaceConfig(decode, ("ar", "mars", *found.get("lanes", ())), **given(*RACE[1:]))
    lanes = ("ar", *found["batch_lanes"]) if "batch_lanes" in found else BatchRaceConfig().lanes
    BatchRaceConfig(decode, lanes=lanes, **given("rows", "cache_block"))
    if "prompts" in found:
        conversations(found["prompts"])
    if any(name in found for name in TEXTS):
        conversation(found.get("prompt", "-"), None, found.get("system", ""))
    return found


def _value(name: str, text: str, hint: Any) -> Any:
    """The text as the field has it; what is no word of a list is left to the configuration."""
    if name in LISTS:
        return tuple(lane for lane in text.split(",") if lane)
    if hint is bool:
        if text.lower() not in TRUTH:
            raise MarsError(f"the link's {name} must be true or false")
        return TRUTH[text.lower()]
    try:
        return {int: int, float: float}.get(hint, str)(text)
    except ValueError:
        raise MarsError(f"the link's {name} must be a number") from None
