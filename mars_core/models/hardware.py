"""Which device to compute on, and in which arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from mars_core.config import Device, DtypeName, check_choice
from mars_core.errors import MarsError
from mars_core.packing import PackedLinear
from mars_core.stopwatch import Stopwatch

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
# one token, and one token with four masks: the shapes that decoding is made of
PROBE_ROWS = (1, 5)
PROBE_WIDTH = 1024
PROBE_WEIGHTS = 4
PROBE_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A number format, whether linear layers are packed (`packing`), and why this format."""

    dtype: torch.dtype
    packed: bool
    reason: str


def dtype_name(dtype: torch.dtype) -> str:
    """A number format as a person writes it, e.g. "float32"."""
    return str(dtype).removeprefix("torch.")


def choose_device(wanted: Device = "auto") -> torch.device:
    """The device to use; auto takes cuda, then mps, then cpu. MarsError when it is absent."""
    check_choice("device", wanted, Device)
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        return torch.device(next(name for name, there in present.items() if there))
    if not present[wanted]:
        there = ", ".join(name for name, is_there in present.items() if is_there)
        raise MarsError(f"this machine or this torch has no {wanted} device; present: {there}")
    return torch.device(wanted)


def choose_arithmetic(
    wanted: DtypeName, device: torch.device, *, allow_packing: bool = True
) -> Arithmetic:
    """The fastest way to compute on `device` by a probe (cached, about 200 ms).

    A dtype that is asked for is kept, and only whether to pack is probed.
    """
    check_choice("dtype", wanted, DtypeName)
    if wanted == "float64" and device.type == "mps":
        raise MarsError("the mps device cannot compute in float64; choose another dtype")
    if wanted != "auto":
        dtype = DTYPES[wanted]
        return Arithmetic(dtype, fastest(dtype, device, allow_packing)[0], "asked for")
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Arithmetic(torch.bfloat16, False, "this GPU computes in bfloat16")
        return Arithmetic(torch.float16, False, "this GPU has no bfloat16")
    full_packed, full = fastest(torch.float32, device, allow_packing)
    half_packed, half = fastest(torch.bfloat16, device, allow_packing)
    if half == math.inf:
        reason = f"this {_noun(device)} has no bfloat16 (probe)"
        return Arithmetic(torch.float32, full_packed, reason)
    if half < full:
        reason = _comparison("faster", full / half, device)
        return Arithmetic(torch.bfloat16, half_packed, reason)
    reason = "bfloat16 is " + _comparison("slower", half / full, device)
    return Arithmetic(torch.float32, full_packed, reason)


def fastest(dtype: torch.dtype, device: torch.device, allow_packing: bool) -> tuple[bool, float]:
    """Whether packed linear layers are the faster ones, and the milliseconds of the faster."""
    if device.type == "cuda":
        return False, 0.0
    plain = linear_ms(dtype, device, False)
    packed = linear_ms(dtype, device, True) if allow_packing else math.inf
    return packed < plain, min(packed, plain)


def _comparison(word: str, ratio: float, device: torch.device) -> str:
    return f"{ratio:.1f}x {word} on this {_noun(device)} (probe)"


def _noun(device: torch.device) -> str:
    return "processor" if device.type == "cpu" else "GPU"


@lru_cache
@torch.inference_mode()
def linear_ms(dtype: torch.dtype, device: torch.device, packed: bool) -> float:
    """Milliseconds of a few linear layers, summed over the shapes of decoding.

    Several weights take turns, as in a model, so that not only the nearest cache is measured. The
    best round counts: whatever else the machine is doing only ever adds time. Infinite where the
    device cannot do it.
    """
    shape: dict[str, Any] = {"in_features": PROBE_WIDTH, "out_features": PROBE_WIDTH, "bias": False}
    try:
        plain = [nn.Linear(**shape, dtype=dtype, device=device) for _ in range(PROBE_WEIGHTS)]
        layers = [PackedLinear(layer) for layer in plain] if packed else plain
        inputs = [torch.ones(rows, PROBE_WIDTH, dtype=dtype, device=device) for rows in PROBE_ROWS]

        def work() -> None:
            for x in inputs:
                for layer in layers:
                    layer(x)

        watch = Stopwatch(synchronize=synchronizer(device))
        watch.run(work)
        return min(watch.run(work) for _ in range(PROBE_ROUNDS))
    except (RuntimeError, TypeError, AttributeError):
        # a format or an operator that this torch does not have here
        return math.inf


def synchronizer(device: torch.device) -> Callable[[], None]:
    """A function that waits for `device` to finish its queue."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: None
