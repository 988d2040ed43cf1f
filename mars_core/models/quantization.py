"""Weights in 8 or 4 bits through bitsandbytes, for memory that plain ones do not fit into.

All linear layers but the head are quantised, after an adapter was merged. What is computed with
them stays in the model's number format.
"""

from __future__ import annotations

from logging import ERROR, getLogger
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig

from mars_core.config import Quantization, check_choice
from mars_core.errors import MarsError
from mars_core.models.hardware import dtype_name
from mars_core.models.words import one_line

TRIAL_WIDTH = 128
# what bitsandbytes' fused NF4 kernel for CPUs divides a layer's inputs and outputs into
FUSED_INPUTS, FUSED_OUTPUTS = 64, 32
# far above what rounding does to one layer (0.09 in NF4), far below what nonsense would
TRIAL_ERROR = 0.3


def possible(
    kind: Quantization, device: torch.device, dtype: torch.dtype
) -> tuple[Quantization, str | None]:
    """`kind`, or "none" and a sentence that says why these weights are not to be had here.

    Raises MarsError for what is nowhere to be had.
    """
    check_choice("quantize", kind, Quantization)
    if kind == "none":
        return kind, None
    if dtype is torch.float64:
        raise MarsError(f"{kind} weights cannot be computed with in float64: choose another dtype")
    reason = why_not(kind, device, dtype)
    if reason is None:
        return kind, None
    return "none", f"{reason}, so the weights are in {dtype_name(dtype)}"


def in_words(kind: Quantization) -> str:
    """What to add to a description of weights."""
    names = {"none": "", "int8": ", quantised to int8", "nf4": ", quantised to NF4"}
    return names[kind]


def settings(kind: Quantization, dtype: torch.dtype) -> BitsAndBytesConfig | None:
    """What transformers needs to quantise while it loads; None where nothing is."""
    if kind == "none":
        return None
    if kind == "nf4":
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    # No column is kept in 16 bits for its outliers (LLM.int8() does, from 6.0): whether one has
    # some is asked of all rows of a forward at once, so masks would change what is computed for the
    # tokens before them, and one token per forward would no longer be what AR says.
    return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)


def settle(model: nn.Module, dtype: torch.dtype) -> None:
    """Have NF4 layers on a CPU compute in `dtype`, in any size.

    Where a CPU has bfloat16 of its own, bitsandbytes (0.50) takes a fused kernel, twice as fast.
    It computes in bfloat16 whatever is asked for and fails for layers it cannot divide. Weights are
    laid out anew for it at a layer's first use, which is made here, not in the first answer.
    """
    from bitsandbytes.nn.modules import Linear4bit

    for layer in model.modules():
        if isinstance(layer, Linear4bit):
            divides = not (layer.in_features % FUSED_INPUTS or layer.out_features % FUSED_OUTPUTS)
            layer.support_avx512bf16_for_cpu &= divides and dtype is torch.bfloat16
            if layer.support_avx512bf16_for_cpu and layer.weight.device.type == "cpu":
                with torch.no_grad():
                    layer(torch.zeros(1, layer.in_features, dtype=dtype))


def why_not(kind: Quantization, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why bitsandbytes cannot compute such layers on `device`, by trying one; None: it can."""
    try:
        plain = nn.Linear(TRIAL_WIDTH, TRIAL_WIDTH, bias=False, dtype=dtype)
        quantised = _layer(kind, plain).to(device)
        settle(quantised, dtype)
        # it says at every call that it computes in 16 bits
        getLogger("bitsandbytes.autograd._functions").setLevel(ERROR)
        x = torch.ones(1, 2, TRIAL_WIDTH, dtype=dtype)
        with torch.inference_mode():
            wanted, got = plain(x).float(), quantised(x.to(device)).float().cpu()
        if not (got - wanted).norm() <= TRIAL_ERROR * wanted.norm():
            return f"bitsandbytes computes {kind} wrongly on this {device.type} device"
    except ImportError:
        return "bitsandbytes is not installed"
    except Exception as error:
        # a library without kernels for a device says so with many exception types
        reason = one_line(error, 120)
        return f"bitsandbytes cannot compute {kind} on this {device.type} device ({reason})"
    return None


def _layer(kind: Quantization, plain: nn.Linear) -> nn.Module:
    """A layer with the weights of `plain`, to be quantised when it is moved to its device."""
    from bitsandbytes.nn.modules import Int8Params, Linear4bit, Linear8bitLt, Params4bit

    weight = plain.weight.detach().clone()
    layer: Any
    if kind == "nf4":
        layer = Linear4bit(
            plain.in_features, plain.out_features, bias=False, compute_dtype=weight.dtype
        )
        layer.weight = Params4bit(weight, requires_grad=False, quant_type="nf4")
    else:
        layer = Linear8bitLt(
            plain.in_features, plain.out_features, bias=False, has_fp16_weights=False
        )
        layer.weight = Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    return layer
