"""How good a model in training is on examples it does not learn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.decode import decode
from mars_core.events import Done
from mars_core.training.model import DualStream, sdpa
from mars_core.training.objective import Batch, Blocks, Example, Ids, build_batch
from mars_core.training.progress import slot_entries


@torch.no_grad()
def held_out_losses(
    dual: DualStream, examples: Sequence[Example], ids: Ids, batch_size: int
) -> dict[str, Any]:
    """Losses and slots as in the log, and `verified`.

    Blocks have the largest trained size and a fixed phase per example, all phases in turn.
    verified: 1 + the mean number of right masks in a row from a block's first, over whole blocks:
    what greedy decoding that accepted right guesses only would gain per forward.
    """
    size = dual.settings.block_size
    dual.eval()
    parts = torch.zeros(2, dtype=torch.float64)
    counts = torch.zeros(size + 1, 5, dtype=torch.float64)
    runs: list[int] = []
    ordered = sorted(enumerate(examples), key=lambda pair: len(pair[1].ids))
    for first in range(0, len(ordered), batch_size):
        picked = ordered[first : first + batch_size]
        cuts = [[Blocks(size, i % size)] for i, _ in picked]
        batch = build_batch([example for _, example in picked], cuts, ids)
        found = dual(**on_device(batch, dual.device))
        weight = len(picked) / len(examples)
        parts += weight * torch.stack([found["ar"], found["mask"]]).cpu()
        counts += found["counts"].cpu()
        runs += right_runs(found["slots"].tolist(), found["right"].tolist(), size)
    return {
        "ar_loss": float(parts[0]),
        "mask_loss": float(parts[1]),
        "slots": slot_entries(counts.tolist()),
        "verified": 1 + sum(runs) / len(runs) if runs else None,
    }


def right_runs(slots: Sequence[int], right: Sequence[bool], size: int) -> list[int]:
    """Per whole block, how many of its masks are right before the first that is wrong."""
    runs = []
    for i, slot in enumerate(slots):
        if slot == size and i + 1 >= size and slots[i + 1 - size] == 1:
            block = right[i + 1 - size : i + 1]
            runs.append(block.index(False) if False in block else size)
    return runs


@torch.no_grad()
def tokens_per_forward(
    dual: DualStream, prompts: Sequence[Sequence[int]], special: SpecialTokens, context: int
) -> float | None:
    """Tokens per forward at the configured tau, decoding the prompts one by one."""
    config = dual.settings
    settings = DecodeConfig(
        tau=config.tau,
        block_size=config.block_size,
        max_new_tokens=config.evaluate_tokens,
        alternatives=0,
    )
    dual.eval()
    ends = []
    # decoding is not what the layers may be compiled for
    with (
        sdpa(dual),
        torch.compiler.set_stance("force_eager"),
        torch.autocast(dual.device.type, torch.bfloat16, enabled=dual.autocast),
    ):
        for prompt in prompts:
            session = Session(dual.causal, context)
            events = decode(session, prompt, settings, special)
            ends += [event for event in events if isinstance(event, Done)]
    forwards = sum(end.forwards for end in ends)
    return sum(end.tokens for end in ends) / forwards if forwards else None


def distinct_prompts(examples: Sequence[Example], count: int) -> list[list[int]]:
    """The first `count` different prompts of the examples."""
    prompts = dict.fromkeys(tuple(example.ids[: example.start]) for example in examples)
    return [list(prompt) for prompt in prompts][:count]


def on_device(batch: Batch, device: torch.device) -> dict[str, torch.Tensor]:
    """The batch as keyword arguments of `DualStream.forward`."""
    return {name: tensor.to(device) for name, tensor in tensors(batch)}


def tensors(batch: Batch) -> Iterator[tuple[str, torch.Tensor]]:
    for field in dataclasses.fields(batch):
        yield field.name, getattr(batch, field.name)
