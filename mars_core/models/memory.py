"""Memory of this process and of this machine's devices."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import torch
from torch import nn

from mars_core.models.packing import PackedLinear

LOOK_SECONDS = 0.002


def give_back() -> None:
    """Return what was freed to the system.

    The C library keeps the pages of tensors that were freed in case they are wanted again; after a
    model was loaded through copies in other number formats that is as much as the model.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)


def free_bytes(device: torch.device) -> int:
    """Memory of `device` that is free now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def all_bytes(device: torch.device) -> int:
    """Memory of `device`, free or not."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return int(psutil.virtual_memory().total)


def weight_bytes(model: nn.Module) -> int:
    """What the weights of a model take, shared ones once, scales of quantised ones included."""
    held: dict[int, int] = {}
    packed = 0
    for module in model.modules():
        packed += module.nbytes if isinstance(module, PackedLinear) else 0
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            for part in (tensor, *_scales(tensor)):
                held[part.data_ptr()] = part.nbytes
    return packed + sum(held.values())


def _scales(weight: torch.Tensor) -> Iterator[torch.Tensor]:
    """What bitsandbytes keeps beside a quantised weight: int8's scales, NF4's and theirs."""
    if (scales := getattr(weight, "SCB", None)) is not None:
        yield scales
    state = getattr(weight, "quant_state", None)
    while state is not None:
        yield from (state.absmax, state.code)
        state = state.state2


class Peak:
    """The most memory that a device held for this process while it was watched."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bytes = 0

    def look(self) -> int:
        """Bytes held now: of a GPU those of tensors, else those of the process."""
        if self.device.type == "cuda":
            return int(torch.cuda.memory_allocated(self.device))
        return int(psutil.Process().memory_info().rss)

    @contextmanager
    def watching(self) -> Iterator[Peak]:
        """Watch while the block runs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_SECONDS):
                self.bytes = max(self.bytes, self.look())

        self.bytes = self.look()
        watcher = threading.Thread(target=watch, daemon=True)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        watcher.start()
        try:
            yield self
        finally:
            over.set()
            watcher.join()
            if self.device.type == "cuda":
                self.bytes = int(torch.cuda.max_memory_allocated(self.device))
            self.bytes = max(self.bytes, self.look())
