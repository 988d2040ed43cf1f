"""Which device and number format to compute in."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import torch
from torch.nn import functional

from mars_core.config import Device, DtypeName, check_choice
from mars_core.errors import MarsError

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
PROBE_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class DtypeChoice:
    """A number format and, in words, why."""

    dtype: torch.dtype
    reason: str


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


def choose_dtype(wanted: DtypeName, device: torch.device) -> DtypeChoice:
    """The number format; auto is the fastest by a probe of `device` (cached, about 50 ms)."""
    check_choice("dtype", wanted, DtypeName)
    if wanted == "float64" and device.type == "mps":
        raise MarsError("the mps device cannot compute in float64; choose another dtype")
    if wanted != "auto":
        return DtypeChoice(DTYPES[wanted], "asked for")
    return _probed(device)


@lru_cache
def _probed(device: torch.device) -> DtypeChoice:
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return DtypeChoice(torch.bfloat16, "this GPU computes in bfloat16")
        return DtypeChoice(torch.float16, "this GPU has no bfloat16")
    full = linear_seconds(torch.float32, device)
    try:
        half = linear_seconds(torch.bfloat16, device)
    except (RuntimeError, TypeError):
        return DtypeChoice(torch.float32, f"this {_noun(device)} has no bfloat16 (probe)")
    if half < full:
        return DtypeChoice(torch.bfloat16, _comparison("faster", full / half, device))
    return DtypeChoice(torch.float32, "bfloat16 is " + _comparison("slower", half / full, device))


def _comparison(word: str, ratio: float, device: torch.device) -> str:
    return f"{ratio:.1f}x {word} on this {_noun(device)} (probe)"


def _noun(device: torch.device) -> str:
    return "processor" if device.type == "cpu" else "GPU"


@torch.inference_mode()
def linear_seconds(dtype: torch.dtype, device: torch.device) -> float:
    """Median seconds of a few linear layers in `dtype`, summed over the shapes of decoding.

    Several weights take turns, as in a model, so that not only the nearest cache is measured.
    """
    weights = [
        torch.ones(PROBE_WIDTH, PROBE_WIDTH, dtype=dtype, device=device)
        for _ in range(PROBE_WEIGHTS)
    ]
    inputs = [torch.ones(rows, PROBE_WIDTH, dtype=dtype, device=device) for rows in PROBE_ROWS]

    def run() -> float:
        _synchronise(device)
        start = time.perf_counter()
        for x in inputs:
            for weight in weights:
                functional.linear(x, weight)
        _synchronise(device)
        return time.perf_counter() - start

    run()
    return median(run() for _ in range(PROBE_ROUNDS))


def _synchronise(device: torch.device) -> None:
    if device.type == "mps":
        torch.mps.synchronize()
