"""The slow oracle: the MARS loop without a cache, as literally as the paper words it.

It shares nothing with the fast path but the noise of a sampled draw. Every forward recomputes
the whole prefix with all B masks appended, also where a prediction is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.sampling import gumbel


@torch.no_grad()
def reference_decode(
    model: PreTrainedModel,
    prompt: Sequence[int],
    config: DecodeConfig,
    special: SpecialTokens,
    taus: Sequence[float] = (),
    row: int = 0,
    cache_block: int | None = None,
) -> list[list[int]]:
    """Tokens committed by each forward.

    taus: the threshold of each forward, else config's. row: of a batch, for the noise.
    cache_block: the window never crosses the end of a block of so many new tokens.
    """
    ids = list(prompt)
    forwards: list[list[int]] = []
    masks = [special.mask_id] * config.block_size if config.mode == "tau" else []
    while len(ids) < len(prompt) + config.max_new_tokens:
        tau = taus[len(forwards)] if len(forwards) < len(taus) else config.tau
        rows = model(torch.tensor([ids + masks])).logits[0, len(ids) - 1 :]
        slots = config.slots if masks else 1
        committed: list[int] = []
        room = len(prompt) + config.max_new_tokens - len(ids)
        if cache_block is not None:
            room = min(room, cache_block - (len(ids) - len(prompt)) % cache_block)
        for logits in rows[: min(slots, room)]:
            token, sure = reference_choice(logits, ids + committed, config, special, row)
            if committed and (tau >= 1 or not sure >= tau):
                break
            committed.append(token)
            if token in special.eos_ids:
                return [*forwards, committed]
        forwards.append(committed)
        ids += committed
    return forwards


@torch.no_grad()
def reference_composed(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompt: Sequence[int],
    config: DecodeConfig,
    drafting: DecodeConfig,
    special: SpecialTokens,
) -> list[list[int]]:
    """Tokens committed by each forward of `target`, with config.drafts drafts of `draft` each.

    A forward is one of `reference_decode` behind the drafts that the target would say itself.
    """
    ids = list(prompt)
    forwards: list[list[int]] = []
    while len(ids) < len(prompt) + config.max_new_tokens:
        room = len(prompt) + config.max_new_tokens - len(ids)
        drafts: list[int] = []
        if count := min(config.drafts, room - 1):
            asked = replace(drafting, max_new_tokens=count)
            drafts = [t for step in reference_decode(draft, ids, asked, special) for t in step]
        kept: list[int] = []
        for token in drafts:
            row = target(torch.tensor([ids + kept])).logits[0, -1]
            if reference_choice(row, ids + kept, config, special)[0] != token:
                break
            kept.append(token)
            if token in special.eos_ids:
                return [*forwards, kept]
        rest = replace(config, max_new_tokens=room - len(kept))
        own = reference_decode(target, ids + kept, rest, special)[0]
        forwards.append(kept + own)
        ids += kept + own
        if own[-1] in special.eos_ids:
            break
    return forwards


def reference_choice(
    logits: torch.Tensor,
    history: Sequence[int],
    config: DecodeConfig,
    special: SpecialTokens,
    row: int = 0,
) -> tuple[int, float]:
    """The choice after `history` from one line (vocabulary,), and its confidence.

    A draw that is not the most likely token has confidence -1: no mask slot may keep it.
    """
    scores = logits.clone() if logits.dtype == torch.float64 else logits.float()
    if special.mask_id is not None:
        scores[special.mask_id] = -torch.inf
    for token in set(history):
        factor = config.repetition_penalty
        scores[token] = scores[token] * factor if scores[token] < 0 else scores[token] / factor
    if size := config.no_repeat_ngram_size:
        runs = {tuple(history[i : i + size]) for i in range(len(history) - size + 1)}
        for run in runs:
            if run[:-1] == tuple(history[len(history) - size + 1 :]):
                scores[run[-1]] = -torch.inf
    probs = scores.softmax(-1)
    first, second = probs.topk(2).values.tolist()
    possible = probs[probs > 0]
    entropy = -(possible * possible.log()).sum()
    sure = {
        "probability": first,
        "margin": first - second,
        "entropy": (-entropy).exp().item(),
    }[config.metric]
    best = int(probs.argmax())
    if config.temperature == 0:
        return best, sure
    shaped = ((scores - scores.max()) / config.temperature).softmax(-1)
    kept, mass = torch.zeros_like(shaped, dtype=torch.bool), 0.0
    for token in shaped.argsort(descending=True).tolist():
        if mass >= config.top_p:
            break
        kept[token] = True
        mass += shaped[token].item()
    noise = gumbel(config.seed, row, len(history), len(shaped))
    draw = int((shaped.log().double() + noise).masked_fill(~kept, -torch.inf).argmax())
    return draw, sure if draw == best else -1.0
