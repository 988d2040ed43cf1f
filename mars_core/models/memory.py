"""Memory of this process and of this machine's devices."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch
from torch import nn

from mars_core.packing import PackedLinear

LOOK_SECONDS = 0.002
# of glibc's mallopt: from how many bytes on memory is mapped, and above how many it is given back
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1


def give_back() -> None:
    """Return what was freed to the system.

    The C library keeps the pages of tensors that were freed in case they are wanted again; after a
    model was loaded through copies in other number formats that is as much as the model.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    _tell_glibc("malloc_trim", 0)


@contextmanager
def tidily() -> Iterator[None]:
    """Let every tensor that is made in the block have pages of its own.

    Weights are read, merged and quantised one by one, and what is freed of one is too small for the
    next: in the C library's heap that left holes of 20 to 80 MB beside the default model, more or
    less by chance. Pages of their own are given back at once. Afterwards its settings are those
    that it would have chosen itself by then: small tensors come and go in every forward.
    """
    _tell_glibc("mallopt", MMAP_THRESHOLD, 2**16)
    try:
        yield
    finally:
        _tell_glibc("mallopt", MMAP_THRESHOLD, 2**25)
        _tell_glibc("mallopt", TRIM_THRESHOLD, 2**26)


def _tell_glibc(function: str, *values: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            getattr(ctypes.CDLL(None), function)(*values)


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
        state = getattr(state, "state2", None)  # bitsandbytes deletes it in its layout for CPUs


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
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            yield self
            self.bytes = int(torch.cuda.max_memory_allocated(self.device))
        elif _reset_peak():
            yield self
            self.bytes = _peak()
        else:
            with self._looking():
                yield self

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Look every now and then, where the system does not keep the peak."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_SECONDS):
                self.bytes = max(self.bytes, self.look())

        self.bytes = self.look()
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            self.bytes = max(self.bytes, self.look())


def _reset_peak() -> bool:
    """Let Linux forget the most memory this process held; whether it did."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _peak() -> int:
    """The most bytes this process held since then."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(kilobytes)
