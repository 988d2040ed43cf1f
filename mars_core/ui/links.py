"""Links that set the page up, as `?prompt=...&tau=0.8`: never anybody's output. No torch."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.race.settings import RaceConfig
from mars_core.ui.conversation import conversation

TEXTS = ("prompt", "system")
# in the order of `controls.Inputs`, prompt and system first, and of `controls.RaceInputs`
DECODE = (
    "mode", "tau", "block_size", "max_new_tokens", "temperature", "top_p", "repetition_penalty",
    "seed", "metric", "use_last_mask", "drafts",
)  # fmt: skip
RACE = ("lanes", "second_tau", "repeats")
NAMES = (*TEXTS, *DECODE, *RACE)
TRUTH = {"true": True, "1": True, "false": False, "0": False}


def settings_of_link(query: Mapping[str, str]) -> dict[str, Any]:
    """What the parameters of an address set, by the names above; others are not ours.

    Raises MarsError for a value that the page would refuse.
    """
    hints = {**typing.get_type_hints(DecodeConfig), **typing.get_type_hints(RaceConfig)}
    found: dict[str, Any] = {}
    for name in (*DECODE, *RACE):
        if name in query:
            found[name] = _value(name, query[name], hints[name])
    found |= {name: query[name] for name in TEXTS if name in query}
    decode = DecodeConfig(**{name: found[name] for name in DECODE if name in found})
    RaceConfig(
        decode,
        ("ar", "mars", *found.get("lanes", ())),
        **{name: found[name] for name in RACE[1:] if name in found},
    )
    if any(name in found for name in TEXTS):
        conversation(found.get("prompt", "-"), None, found.get("system", ""))
    return found


def _value(name: str, text: str, hint: Any) -> Any:
    """The text as the field has it; what is no word of a list is left to the configuration."""
    if name == "lanes":
        return tuple(lane for lane in text.split(",") if lane)
    if hint is bool:
        if text.lower() not in TRUTH:
            raise MarsError(f"the link's {name} must be true or false")
        return TRUTH[text.lower()]
    try:
        return {int: int, float: float}.get(hint, str)(text)
    except ValueError:
        raise MarsError(f"the link's {name} must be a number") from None
