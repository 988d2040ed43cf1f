"""How much memory a model takes, worked out from its config alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from transformers import PreTrainedConfig

from mars_core.cache import PREFILL_CHUNK, entry_numbers
from mars_core.config import Quantization
from mars_core.models.checks import model_class

# bitsandbytes: numbers that share a scale in NF4, and scales that share one
NF4_BLOCK, NF4_SCALES = 64, 256
FLOAT = 4  # bytes
# Measured with `mars plan --measure` on a CPU: what the prefill of a chunk holds, in multiples of
# what one layer needs, since some of what was freed is not at once used again.
LAYERS_HELD = 1.5
# likewise: numbers in 32 bits that bitsandbytes makes of each input and output of an int8 layer
INT8_COPIES = 6
# likewise: merging, in multiples of the weights in float32
MERGING = 2.5
# a tokenizer in memory, for each token it knows
TOKENIZER_BYTES = 350


@dataclass(frozen=True)
class Sizes:
    """Counts of numbers, not bytes.

    linear: weights of the linear layers but the head, which quantisation can make smaller;
    outputs: their output features. others: everything else, tied ones once; head: of these, the
    head's. largest: the largest linear layer. entry: keys and values of one token. vocabulary,
    hidden, inner: widths of logits, layers, and of the layers' inner part. context: positions.
    tied: whether the head is the embedding.
    """

    linear: int
    outputs: int
    others: int
    head: int
    largest: int
    entry: int
    vocabulary: int
    hidden: int
    inner: int
    context: int
    tied: bool

    @classmethod
    def of(cls, config: PreTrainedConfig) -> Sizes:
        """Those of a causal language model; nothing of it is allocated."""
        with torch.device("meta"):
            model = model_class(config)(config)
        head = model.get_output_embeddings()
        layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]
        linear = sum(layer.weight.numel() for layer in layers)
        return cls(
            linear=linear,
            outputs=sum(layer.out_features for layer in layers),
            others=sum(parameter.numel() for parameter in model.parameters()) - linear,
            head=head.weight.numel(),
            largest=max((layer.weight.numel() for layer in layers), default=0),
            entry=entry_numbers(config),
            vocabulary=config.vocab_size,
            hidden=config.hidden_size,
            inner=max((max(layer.weight.shape) for layer in layers), default=config.hidden_size),
            context=config.max_position_embeddings,
            tied=head.weight is model.get_input_embeddings().weight,
        )

    @cached_property
    def parameters(self) -> int:
        """All numbers of the model, tied ones once."""
        return self.linear + self.others

    def weights(
        self, dtype: torch.dtype, kind: Quantization = "none", *, packed: bool = False
    ) -> int:
        """Bytes of the weights on their device; a packed head is no longer the embedding."""
        copied = self.head if packed and self.tied else 0
        return self.linear_bytes(dtype, kind) + (self.others + copied) * dtype.itemsize

    def linear_bytes(self, dtype: torch.dtype, kind: Quantization) -> int:
        """Bytes of the linear layers but the head, their scales included."""
        if kind == "int8":
            return self.linear + self.outputs * FLOAT
        if kind == "nf4":
            scales = self.linear // NF4_BLOCK
            return self.linear // 2 + scales + scales // NF4_SCALES * FLOAT
        return self.linear * dtype.itemsize

    def cache(self, tokens: int, dtype: torch.dtype) -> int:
        """Bytes of the keys and values of so many tokens."""
        return self.entry * dtype.itemsize * tokens

    def workspace(
        self,
        tokens: int,
        dtype: torch.dtype,
        kind: Quantization = "none",
        rows: int = 1,
        *,
        on_cpu: bool = True,
    ) -> int:
        """Bytes that forwards take besides, at most: about, and not only of tensors.

        The prefill of one chunk of all rows takes most: its layers, its attention mask as bools
        and as numbers, keys and values once for every query head. NF4 adds its largest layer in
        full and int8 numbers in 32 bits.
        """
        fed, size = rows * min(PREFILL_CHUNK, tokens), dtype.itemsize
        layer = fed * (3 * self.inner + 6 * self.hidden) * size
        attention = fed * tokens * (1 + size) + 2 * rows * tokens * self.hidden * size
        quantised = {
            "none": 0,
            "nf4": 2 * self.largest * size,
            "int8": INT8_COPIES * fed * (self.inner + self.hidden) * FLOAT,
        }
        held = layer + attention + quantised[kind]
        slack = LAYERS_HELD * held + TOKENIZER_BYTES * self.vocabulary
        return int(slack) if on_cpu else held

    def loading(
        self, dtype: torch.dtype, kind: Quantization, *, merging: bool, on_cpu: bool = True
    ) -> int:
        """Bytes of RAM that loading takes at most, about.

        merging: with an adapter, which is merged in float32 on the CPU, layer by layer; what is
        freed meanwhile is not at once given back. on_cpu: that is where the weights stay. Pages of
        the file, which is mapped into memory, can be dropped and do not count.
        """
        if merging:
            return int(MERGING * self.parameters * FLOAT)
        return (self.weights(dtype, kind) if on_cpu else 0) + max(self.largest, self.head) * FLOAT
