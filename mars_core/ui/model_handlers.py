"""What the page's listeners call about the model itself: how far it is, and the choice of one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import gradio as gr

from mars_core.config import Quantization
from mars_core.errors import MarsError
from mars_core.model_thread import PageEngine, ThreadedEngine, in_background
from mars_core.models.progress import LatestProgress
from mars_core.switching import Switcher, label
from mars_core.ui import view
from mars_core.ui.line import LOOK_SECONDS, Line

NOT_LOADED = (
    "The model could not be loaded because of an error in the program; the server's log has it."
)

log = logging.getLogger(__name__)


class ModelHandlers:
    """Tells of the page's model, also while it is on its way, and lets visitors choose another.

    line: the runs, which a change of the model waits behind. name, loading: how the model is called
    until it is there, and how far it is. switcher: None where nobody may choose.
    """

    def __init__(
        self,
        engine: Future[PageEngine],
        line: Line,
        name: str = "",
        loading: LatestProgress | None = None,
        switcher: Switcher | None = None,
    ) -> None:
        self.engine = engine
        self.line = line
        self.name = name
        self.loading = loading or LatestProgress()
        self._switcher = switcher

    @property
    def switcher(self) -> Switcher:
        assert self._switcher is not None
        return self._switcher

    def why_waiting(self) -> str:
        """A sentence for a run that waits for the model to be there."""
        return view.LOADING + (f" ({self.loading.text})" if self.loading.text else "")

    def shown(self) -> tuple[str, str]:
        """Head and notices of the page as they are now."""
        if not self.engine.done():
            return view.head_html(f"{self.name} · {self.loading.text or 'loading …'}"), ""
        try:
            facts = model_facts(self.engine.result().loaded)
        except MarsError as error:
            return view.head_html("no model"), view.notices_html([view.sentence(error)])
        except Exception:
            log.exception("no model could be loaded")
            return view.head_html("no model"), view.notices_html([NOT_LOADED])
        head = view.head_html(view.model_line(facts), view.model_details(facts))
        return head, view.notices_html(view.notices(facts))

    def opened(self) -> Iterator[tuple[str, str]]:
        """The same as it changes, until the model is there."""
        with suppress(Exception):  # what went wrong is in what is shown then
            for _ in self.loading.until(self.engine):
                yield self.shown()
        yield self.shown()

    def chosen(self) -> tuple[str, str, Quantization]:
        """Which model is the present one, or will be, as it is chosen."""
        return self.switcher.chosen()

    def details(self) -> str:
        """What the present model takes, once it is there."""
        try:
            told = f"{view.model_details(model_facts(self.engine.result().loaded))}."
        except MarsError as error:
            told = view.sentence(error)
        return view.choice_html(f"{told} {view.FOR_EVERYBODY}")

    def weigh(self, model: str, adapter: str, quantize: Quantization) -> str:
        """What the model that is chosen would take, a sentence."""
        if not self.engine.done():
            return view.choice_html(view.LOADING)
        try:
            wanted = self.switcher.wanted(model, adapter, quantize)
            return view.choice_html(self.switcher.weigh(wanted, self._held()).text)
        except MarsError as error:
            return view.choice_html(view.sentence(error))

    def switch(
        self, model: str, adapter: str, quantize: Quantization
    ) -> Iterator[tuple[Any, Any, str]]:
        """Let the chosen model take the place of the present one, for everybody.

        Yields head, notices and a sentence about how far it is. Its files are fetched while runs go
        on; then it waits its turn. What cannot be had leaves the present model where it is.
        """
        same = gr.skip(), gr.skip()
        try:
            yield *same, view.choice_html(self.why_waiting())
            for _ in self.loading.until(self.engine):
                yield *same, view.choice_html(self.why_waiting())
            engine = self.engine.result()
            assert isinstance(engine, ThreadedEngine)  # a forked one is never offered a choice
            steps = LatestProgress()
            wanted = self.switcher.wanted(model, adapter, quantize)
            self.switcher.check(wanted, self._held())
            for text in steps.until(in_background(partial(self.switcher.fetch, wanted, steps))):
                yield *same, view.choice_html(text)
            with self.line.join() as ahead:
                place = ahead(None, LOOK_SECONDS)
                while place:
                    yield *same, view.choice_html(view.waiting_text(place))
                    place = ahead(place, LOOK_SECONDS)
                room = self.switcher.check(wanted, self._held())
                for text in steps.until(self.switcher.switch(engine, wanted, room, steps)):
                    head = view.head_html(f"{label(wanted)} · {text}")
                    yield head, gr.skip(), view.choice_html(text)
        except MarsError as error:
            yield *self.shown(), view.choice_html(view.sentence(error))
        except Exception:
            log.exception("a model could not be loaded")
            yield *self.shown(), view.choice_html(NOT_LOADED)
        else:
            yield *self.shown(), view.choice_html(f"{label(wanted)} is loaded.")

    def _held(self) -> int:
        """Bytes that are free once the present model is gone."""
        if not self.engine.done() or self.engine.exception() or not self.engine.result().present:
            return 0
        return int(self.engine.result().loaded.weight_bytes)


def model_facts(loaded: Any) -> view.ModelFacts:
    """What the page tells of a `LoadedModel`."""
    return view.ModelFacts(
        name=loaded.name,
        trained=loaded.trained,
        block_size=loaded.block_size,
        dtype=loaded.dtype_name,
        device=str(getattr(loaded.device, "type", loaded.device)),
        parameters=loaded.parameters,
        dtype_reason=loaded.dtype_reason,
        quantization=loaded.quantization,
        quantization_note=loaded.quantization_note,
        weight_bytes=loaded.weight_bytes,
        entry_bytes=loaded.entry_bytes,
        licence=loaded.licence,
    )
