"""Another model in the place of the page's, without a restart. No torch until it is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from mars_core.config import DecodeConfig, LoadConfig, Quantization
from mars_core.errors import MarsError
from mars_core.model_thread import ModelThread, Opened, ThreadedEngine
from mars_core.models import catalog
from mars_core.models.progress import Progress, silent
from mars_core.models.words import folder_at

if TYPE_CHECKING:
    from mars_core.models.load import LoadedModel
    from mars_core.models.plan import Format

PLANNED_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Room:
    """Whether a model fits. text: a sentence about it; beside: also while the present one stays."""

    text: str
    fits: bool
    beside: bool


def open_for_page(config: LoadConfig, load: Callable[[LoadConfig], LoadedModel]) -> Opened:
    """An engine that is ready for a page's settings, and its races."""
    from mars_core.race.lanes import open_racer

    engine, racer = open_racer(config, load)
    engine.warm_up(DecodeConfig(mode="verified"))  # a visitor may switch to it in mid-run
    return engine, racer


class Switcher:
    """Weighs models and puts them in the place of the page's.

    base: what the page began with; device and the like do not change with the model. present: what
    it has now.
    """

    def __init__(self, thread: ModelThread, base: LoadConfig) -> None:
        self._thread = thread
        self.base = self.present = base

    def wanted(self, model: str, adapter: str, quantize: Quantization) -> LoadConfig:
        """What a person chose; an empty adapter is the one that comes with the model."""
        named: dict[str, str | None] = {"": "auto", "none": None}
        given, name = adapter.strip(), model.strip()
        return replace(
            self.base,
            model=name,
            adapter=named.get(given, given),
            quantize=quantize,
            mask_token=self.base.mask_token if name == self.base.model else None,
        )

    def chosen(self) -> tuple[str, str, Quantization]:
        """The present model, as `wanted` takes it."""
        adapter = {"auto": "", None: "none"}.get(self.present.adapter, self.present.adapter or "")
        return self.present.model, adapter, self.present.quantize

    def weigh(self, wanted: LoadConfig, held: int) -> Room:
        """Whether a model fits; held: bytes that are free once the present one is gone."""
        from mars_core.models import plan
        from mars_core.models.adapter import chosen
        from mars_core.models.hardware import choose_device
        from mars_core.models.memory import free_bytes
        from mars_core.models.sizes import Sizes

        sizes = Sizes.of(plan.config_of(wanted.model, wanted.models_dir))
        device = choose_device(wanted.device)
        form = self._format(wanted)
        tokens = min(PLANNED_TOKENS, sizes.context)
        on_cpu = device.type == "cpu"
        total = plan.needs(sizes, form, tokens, on_cpu=on_cpu).total
        merging = chosen(wanted.model, wanted.adapter) is not None
        loading = sizes.loading(form.torch_dtype, form.quantization, merging=merging)
        needed = max(total, loading) if on_cpu else total
        free = free_bytes(device)
        usable = plan.SHARE_OF_FREE * free
        fits = needed <= usable + held
        size, left = plan.size_text(total), plan.size_text(free)
        more = f", {plan.size_text(needed)} while it is loaded" if needed > total else ""
        verdict = "" if fits else " It does not fit."
        text = f"{form.name}: {size} for {tokens:,} tokens{more}; {left} free.{verdict}"
        return Room(text + _licence(wanted.model), fits, needed <= usable)

    def check(self, wanted: LoadConfig, held: int) -> Room:
        """As `weigh`; raises MarsError where the model does not fit."""
        room = self.weigh(wanted, held)
        if not room.fits:
            raise MarsError(f"{room.text} Choose weights in 4 bits, or a smaller model")
        return room

    def _format(self, wanted: LoadConfig) -> Format:
        """In which numbers it would be here; the model's thread tries them out."""
        from mars_core.models.hardware import choose_arithmetic, choose_device, dtype_name
        from mars_core.models.plan import Format
        from mars_core.models.quantization import possible

        def tried() -> Format:
            device = choose_device(wanted.device)
            packing = wanted.packing and not wanted.compiled
            how = choose_arithmetic(wanted.dtype, device, allow_packing=packing)
            kind, _ = possible(wanted.quantize, device, how.dtype)
            return Format(dtype_name(how.dtype), kind, how.packed and kind == "none")

        return self._thread.submit(tried).result()

    def fetch(self, wanted: LoadConfig, progress: Progress = silent) -> None:
        """Have its files on this machine, while the present model goes on. Raises MarsError."""
        from mars_core.models.adapter import chosen, find_adapter
        from mars_core.models.load import resolve

        resolve(wanted.model, wanted.models_dir, progress)
        adapter = chosen(wanted.model, wanted.adapter)
        if adapter is not None:
            find_adapter(adapter, progress)

    def switch(
        self, engine: ThreadedEngine, wanted: LoadConfig, room: Room, progress: Progress = silent
    ) -> Future[None]:
        """Let the model take the place of the page's, when no run is going on."""
        from mars_core.models.load import load_as

        def opening() -> Opened:
            opened = open_for_page(wanted, partial(load_as, progress=progress))
            self.present = wanted
            return opened

        return engine.switch(opening, beside=room.beside)


def label(wanted: LoadConfig) -> str:
    """How a model is called: of a folder its name, never a path."""
    path = folder_at(wanted.model)
    return wanted.model if path is None else path.resolve().name


def _licence(model: str) -> str:
    entry = catalog.find(model)
    return f" Licence: {entry.licence}." if entry else ""
