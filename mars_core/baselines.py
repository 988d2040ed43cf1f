"""What others would use on the same weights, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from mars_core.models.load import LoadedModel


@torch.inference_mode()
def transformers_generate(
    loaded: LoadedModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    eos_ids: Sequence[int] = (),
    repetition_penalty: float = 1.0,
) -> list[int]:
    """Greedy `generate` of transformers with its default KV cache; the new token ids.

    The mask token is suppressed, as in our own decoding. Without eos_ids the run has exactly
    max_new_tokens tokens.
    """
    ids = torch.tensor([list(prompt)], device=loaded.device)
    mask_id = loaded.special.mask_id
    generate = cast(Any, loaded.model).generate  # a mixin's method that the base type lacks
    output: torch.Tensor = generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        repetition_penalty=repetition_penalty,
        suppress_tokens=None if mask_id is None else [mask_id],
        eos_token_id=list(eos_ids) or None,
        pad_token_id=0,
    )
    return [int(token) for token in output[0, len(prompt) :]]
