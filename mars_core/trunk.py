"""Everything of a model but its head, as decoding runs it: ids in, hidden states out.

A step of decoding is a forward of a few rows, so what surrounds the matrix products counts. For
models of the Llama family `Lean` does the arithmetic of transformers' forward on the very same
modules, in under half as many operations: one mask for all layers, keys and values read where they
are cached (heads that share them go together instead of being given copies), rotation in three
operations. Every other model runs through transformers itself (`Whole`).

On a GPU what counts is starting all those operations: `Compiled` is `Lean` as compiled code for a
few fixed shapes, which torch can replay as CUDA graphs.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

from mars_core.packing import side_by_side

LEAN = (LlamaModel, Qwen2Model, Qwen3Model)


class Trunk(Protocol):
    """A model without its head, on top of a cache."""

    def width(self, needed: int) -> int:
        """How wide a forward is made that has to be so wide at least."""
        ...

    def __call__(self, ids: Tensor, positions: Tensor, visible: Tensor | None) -> Tensor:
        """Hidden states (rows, width, size) behind the last norm.

        ids, positions: (rows, width). visible: (rows, 1, width, total) bool, which cached entry or
        fed token each fed token may see; None: all of them.
        """
        ...


class Growing(Protocol):
    """Keys and values of one layer, those of the running forward put behind what is there."""

    def update(self, keys: Tensor, values: Tensor, /) -> tuple[Tensor, Tensor]:
        """Take in (rows, heads, width, d) each; all that may be seen, (rows, heads, total, d)."""
        ...


def can_be_lean(model: PreTrainedModel) -> bool:
    """Whether `Lean` does what this model does."""
    config = model.config
    usual = getattr(config, "hidden_act", None) == "silu" and config._attn_implementation == "sdpa"
    return usual and type(model.get_decoder()) in LEAN


class Whole:
    """transformers' own forward."""

    def __init__(self, model: PreTrainedModel, layers: Sequence[Any]) -> None:
        self._decoder = model.get_decoder()
        self._model = model
        self._cache = Cache(layers=list(layers))
        self._argument = cache_argument(self._decoder)

    def width(self, needed: int) -> int:
        """See Trunk."""
        return needed

    def __call__(self, ids: Tensor, positions: Tensor, visible: Tensor | None) -> Tensor:
        """See Trunk."""
        mask = visible
        if visible is not None and self._model.config._attn_implementation != "sdpa":
            mask = as_bias(visible, self._model.dtype)
        found = self._decoder(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            **{self._argument: self._cache},
        )
        return torch.as_tensor(found.last_hidden_state)


class Lean:
    """The forward of Llama, Qwen2 (biases) and Qwen3 (norms of queries and keys).

    Checked against transformers' in `tests/test_trunk.py`. Shapes: n fed tokens of each row, h
    heads of size d, k of them with keys and values of their own, g = h / k that share them.
    """

    def __init__(self, model: PreTrainedModel, layers: Sequence[Growing]) -> None:
        self._decoder: Any = model.get_decoder()
        self._layers = layers

    def width(self, needed: int) -> int:
        """See Trunk."""
        return needed

    def __call__(self, ids: Tensor, positions: Tensor, visible: Tensor | None) -> Tensor:
        """See Trunk."""
        return hidden_states(self._decoder, self._layers, ids, positions, visible)


def hidden_states(
    decoder: Any,
    layers: Sequence[Growing],
    ids: Tensor,
    positions: Tensor,
    visible: Tensor | None,
) -> Tensor:
    """What `Lean` computes; arguments as for Trunk."""
    config = decoder.config
    x = decoder.embed_tokens(ids)
    cos, sin = decoder.rotary_emb(x, positions)  # (rows, n, d), both halves of d alike
    cos, sin = cos[:, :, None], signed(sin)[:, :, None]
    bias = None
    if visible is not None:
        group = config.num_attention_heads // config.num_key_value_heads
        bias = as_bias(visible, x.dtype).repeat(1, 1, group, 1)
    for layer, cached in zip(decoder.layers, layers, strict=True):
        y = norm(layer.input_layernorm, x)
        x = x + attended(layer.self_attn, y, cos, sin, bias, cached)
        y, mlp = norm(layer.post_attention_layernorm, x), layer.mlp
        gate, up = side_by_side((mlp.gate_proj, mlp.up_proj), y).chunk(2, dim=-1)
        x = x + mlp.down_proj(silu(gate).mul_(up))
    return norm(decoder.norm, x)


def attended(
    attention: Any,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    bias: Tensor | None,
    cached: Growing,
) -> Tensor:
    """Self-attention of x (rows, n, size) over what is cached and x itself.

    cos, sin: (rows, n, 1, d). bias: (rows, 1, g n, entries), to be added to the scores.
    """
    rows, n, _ = x.shape
    d = attention.head_dim
    heads, own = attention.config.num_attention_heads, attention.config.num_key_value_heads
    found = side_by_side((attention.q_proj, attention.k_proj, attention.v_proj), x)
    turning, v = found.view(rows, n, -1, d).split((heads + own, own), dim=2)
    if hasattr(attention, "q_norm"):
        q, k = turning.split((heads, own), dim=2)
        turning = torch.cat((norm(attention.q_norm, q), norm(attention.k_norm, k)), dim=2)
    q, k = rotated(turning, cos, sin).split((heads, own), dim=2)
    keys, values = cached.update(k.transpose(1, 2), v.transpose(1, 2))
    # heads with the same keys and values as one head with more queries: (rows, k, g n, d)
    queries = q.view(rows, n, own, -1, d).permute(0, 2, 3, 1, 4).reshape(rows, own, -1, d)
    mixed = scaled_dot_product_attention(
        queries, keys, values, attn_mask=bias, scale=attention.scaling
    )
    mixed = mixed.view(rows, own, -1, n, d).permute(0, 3, 1, 2, 4).reshape(rows, n, heads * d)
    return torch.as_tensor(attention.o_proj(mixed))


def norm(module: Any, x: Tensor) -> Tensor:
    """An RMSNorm of transformers, x * weight / rms(x)."""
    weight, eps = module.weight, module.variance_epsilon
    if x.dtype is torch.float64:  # transformers takes the mean in float32, whatever x is
        return weight * rms_norm(x.float(), weight.shape, eps=eps).to(x.dtype)
    return rms_norm(x, weight.shape, weight, eps)


def signed(sin: Tensor) -> Tensor:
    """The sines with the signs that a rotation gives to the half a number comes from."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x (rows, n, heads, d); sin is `signed`."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def as_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """What attention adds to its scores: 0 where something is visible, else the lowest number."""
    bias = torch.zeros_like(visible, dtype=dtype)
    return bias.masked_fill_(~visible, torch.finfo(dtype).min)


def cache_argument(module: nn.Module) -> str:
    """What the forward of a model calls its cache: transformers 5.24 renamed the argument."""
    parameters = inspect.signature(type(module).forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
