"""Everyday prompts to start a distillation from: templates times topics of `assets/data`. No torch.

Most have one turn, some a second ("Shorter, please.") or a third, some a system prompt. First turns
are all different; there are about 5,000.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

from mars_core.errors import MarsError
from mars_core.paths import assets_dir

SYSTEM_SHARE = 0.25
# how often a conversation has one, two, three user turns
TURNS = {1: 0.65, 2: 0.28, 3: 0.07}


def load_families() -> dict[str, Any]:
    """The file of templates: `families`, `follow_ups` by their name, `systems`."""
    text = (assets_dir() / "data" / "everyday.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def expand(family: dict[str, Any]) -> Iterator[str]:
    """Every first turn of a family: each template with each value in each of its slots."""
    slots = family["slots"]
    for template, *values in itertools.product(family["templates"], *slots.values()):
        # not str.format: code has braces of its own
        for name, value in zip(slots, values, strict=True):
            template = template.replace("{" + name + "}", value)
        yield template


def everyday_prompts(seed: int, n: int) -> list[dict[str, Any]]:
    """n rows for `mars distill`; the same seed gives the same rows.

    The families take turns for as long as they have prompts, so fewer rows are a varied choice.
    """
    data = load_families()
    rng = random.Random(f"everyday {seed}")
    queues = []
    for family in data["families"]:
        prompts = list(expand(family))
        rng.shuffle(prompts)
        queues.append([(family, prompt) for prompt in prompts])
    in_turn = [x for row in itertools.zip_longest(*queues) for x in row if x is not None]
    if n > len(in_turn):
        raise MarsError(f"there are {len(in_turn)} everyday prompts, not {n}")
    return [row_of(family, prompt, data, rng) for family, prompt in in_turn[:n]]


def row_of(
    family: dict[str, Any], prompt: str, data: dict[str, Any], rng: random.Random
) -> dict[str, Any]:
    """The row of one first turn: its kind, further turns, a system prompt."""
    row: dict[str, Any] = {"kind": family["kind"]}
    (turns,) = rng.choices(list(TURNS), list(TURNS.values()))
    if turns == 1:
        row["prompt"] = prompt
    else:
        row["turns"] = [prompt, *rng.sample(data["follow_ups"][family["follow_ups"]], turns - 1)]
    if rng.random() < SYSTEM_SHARE:
        row["system"] = rng.choice(data["systems"])
    return row
