"""How much memory a model really takes: what `mars_core.models.plan` works out, measured."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mars_core.cache import Fed
from mars_core.config import Device, DtypeName
from mars_core.errors import MarsError
from mars_core.models.hardware import choose_device
from mars_core.models.load import LoadedModel, load
from mars_core.models.memory import Peak, give_back
from mars_core.models.plan import Format
from mars_core.models.words import one_line

RUNS = 3
WINDOW = 9  # rows of the last forward, as many as verified decoding feeds


@dataclass(frozen=True, slots=True)
class Task:
    """A model to load, and how many tokens of each of how many rows it is to hold."""

    model: str
    adapter: str | None
    device: Device
    models_dir: Path | None
    form: Format
    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes above those of the program, at most, of a model that is loaded and decodes. note: why
    the weights are in another format than was asked for."""

    bytes: int
    note: str | None


def measured(task: Task) -> Measured:
    """Load and decode in a process of its own. Raises MarsError where it dies."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        try:
            return pool.submit(measure, task).result()
        except (BrokenProcessPool, MemoryError, RuntimeError) as error:
            raise MarsError(
                f"{task.model} could not be measured in {task.form.name}, perhaps for lack of "
                f"memory ({one_line(error, 80)})"
            ) from None


def measure(task: Task) -> Measured:
    """The same in this process, and the least of some runs.

    Neither libraries that the first one brings in count, nor holes that the heap has by chance.
    """
    found = []
    for _ in range(RUNS):
        found.append(once(task))
        give_back()
    return min(found, key=lambda one: one.bytes)


def once(task: Task) -> Measured:
    """Load, fill the cache, run a forward; on a CPU, memory is that of the process."""
    peak = Peak(choose_device(task.device))
    before = peak.look()
    loaded = load(
        task.model,
        adapter=task.adapter,
        device=task.device,
        dtype=cast(DtypeName, task.form.dtype),
        quantize=task.form.quantization,
        models_dir=task.models_dir,
        packing=task.form.packed,
    )
    with peak.watching():
        fill(loaded, task.rows, task.tokens)
    return Measured(peak.bytes - before, loaded.quantization_note)


def fill(loaded: LoadedModel, rows: int, tokens: int) -> None:
    """Decode as far as memory is concerned: prompts, then a forward of a window behind each."""
    held = tokens - WINDOW
    session = loaded.session(rows, tokens)
    session.prefill([[0] * held] * rows)
    session.forward([Fed([0] * WINDOW, range(held, tokens), head=range(WINDOW))] * rows)
