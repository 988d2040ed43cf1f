"""A model whose logits are written down, for tests of what the loop does with them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch

VOCAB = 64
MASK_ID = 63


class ScriptedModel:
    """Stands where a transformers model stands, without layers.

    script(position, is_mask) -> (token, logit): what the row at `position` predicts and how
    sharply; every other logit is 0.
    """

    def __init__(
        self, script: Callable[[int, bool], tuple[int, float]], vocab: int = VOCAB
    ) -> None:
        self.script = script
        self.vocab = vocab
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.config = SimpleNamespace(num_hidden_layers=0, _attn_implementation="sdpa")
        self.calls: list[list[int]] = []

    def get_decoder(self) -> ScriptedModel:
        return self

    def get_output_embeddings(self) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda logits: logits

    def __call__(self, **kwargs: object) -> SimpleNamespace:
        return self.forward(**kwargs)

    def forward(self, input_ids, position_ids, attention_mask, use_cache, cache) -> SimpleNamespace:
        self.calls.append(input_ids[0].tolist())
        logits = torch.zeros(*input_ids.shape, self.vocab)
        for i, (ids, places) in enumerate(zip(input_ids, position_ids, strict=True)):
            for j, (token, place) in enumerate(zip(ids.tolist(), places.tolist(), strict=True)):
                predicted, logit = self.script(place, token == MASK_ID)
                logits[i, j, predicted] = logit
        return SimpleNamespace(last_hidden_state=logits)
