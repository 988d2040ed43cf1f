"""What the page says and sends, as pure functions. No torch, no Gradio.

The page's wire format is the trace itself: a growing string of JSON Lines that the player in the
browser (`assets/player`) draws. Besides trace records there is one kind of line, of type "page":
it opens what `Transcript` sends, and `page_line` is for what the page has to say without a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any, Literal, NamedTuple

from mars_core.config import Mode
from mars_core.errors import MarsError
from mars_core.models.catalog import UNKNOWN_LICENCE, ModelEntry
from mars_core.race.records import AnyRaceRecord
from mars_core.trace import dump_record

FOR_EVERYBODY = "Another one is for everybody who has this page open."
LOADING = "The model is being loaded …"
BATCH_SECONDS = 0.1
# a program at the endpoint needs no smooth motion, and every update takes time from decoding
CLIENT_BATCH_SECONDS = 1.0
SMALL_MODEL_PARAMETERS = 500_000_000

PageState = Literal["waiting", "idle", "error", "failed", "cut", "note"]
ViewName = Literal["chat", "race"]


class ModelFacts(NamedTuple):
    """What the page tells of the loaded model.

    device: a torch device type, as "cpu". dtype_reason: why this number format. quantization: of
    the weights; quantization_note: why it is not what was asked for. weight_bytes, entry_bytes:
    memory of the weights, and of the keys and values of one token.
    """

    name: str
    trained: bool
    block_size: int | None
    dtype: str
    device: str
    parameters: int
    dtype_reason: str = ""
    quantization: str = "none"
    quantization_note: str | None = None
    weight_bytes: int = 0
    entry_bytes: int = 0
    licence: str | None = None


def record_line(record: AnyRaceRecord) -> str:
    """The record as one line for the page.

    "<" is written as its JSON escape, which means the same to every reader of JSON: should any
    layer in between take the text for HTML, there is no tag in it.
    """
    return _safe(dump_record(record)) + "\n"


def page_line(state: PageState, text: str = "", view: ViewName = "chat") -> str:
    """A word of the page itself to one of its views, which is no trace record.

    waiting: a run was asked for. idle: it was called off. error: it was refused (a run that is
    going on goes on). failed: it broke off. cut: there is no more of it. note: about what is shown.
    """
    return _safe(_json({"type": "page", "view": view, "state": state, "text": text})) + "\n"


def _json(message: dict[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"))


def _safe(line: str) -> str:
    return line.replace("<", "\\u003c")


def batched_lines(
    records: Iterable[AnyRaceRecord],
    clock: Callable[[], float],
    interval: float = BATCH_SECONDS,
) -> Iterator[list[str]]:
    """The lines of a trace in batches, at most one per `interval` seconds.

    The first record goes out at once, and so does what is left when the run ends.
    """
    pending: list[str] = []
    sent_at: float | None = None
    for record in records:
        pending.append(record_line(record))
        now = clock()
        if sent_at is None or now - sent_at >= interval:
            sent_at = now
            yield pending
            pending = []
    if pending:
        yield pending


def growing_text(batches: Iterable[list[str]]) -> Iterator[str]:
    """The trace so far, again and again as it grows. Each text begins with the one before."""
    text = ""
    for batch in batches:
        text += "".join(batch)
        yield text


class Transcript:
    """The lines of one run, and the part of them that the page is sent.

    The page's cost per update grows with what it is sent (Gradio compares values as JSON, several
    times), so of a long run that is only the end, after a line that says how many lines precede
    it. It overlaps with what was sent before: a browser that merges updates misses nothing, and
    one that did (a tab in the background) asks for the whole.
    """

    window = 192_000  # characters, about 100 forwards with their alternatives

    def __init__(self, run: int, view: ViewName = "chat") -> None:
        self._run = run
        self._view = view
        self._lines: list[str] = []
        self._first = 0
        self._size = 0

    def add(self, batch: list[str]) -> str:
        """Take new lines; return what to send now. It grows at its end most of the time."""
        self._lines += batch
        self._size += sum(map(len, batch))
        if self._size > self.window:
            while self._size > self.window // 2:
                self._size -= len(self._lines[self._first])
                self._first += 1
        return self._text(self._first)

    def whole(self) -> str:
        """Everything so far."""
        return self._text(0)

    def _text(self, first: int) -> str:
        opening = {
            "type": "page", "view": self._view, "state": "trace", "run": self._run, "at": first
        }  # fmt: skip
        return "".join((_json(opening), "\n", *self._lines[first:]))


def shown_recording(lines: str, note: str, name: str = "shipped") -> str:
    """A recording (JSON Lines) for the page to show, and a word about it; names tell them apart."""
    view: ViewName = "race" if lines.startswith('{"type":"race"') else "chat"
    opening = {"type": "page", "view": view, "state": "trace", "run": name, "at": 0}
    return f"{_safe(_json(opening))}\n{_safe(lines)}{page_line('note', note, view)}"


def model_line(model: ModelFacts) -> str:
    """The model in one line, e.g. "smollm2-135m · not MARS-trained · float32 · CPU"."""
    if not model.trained:
        training = "not MARS-trained"
    elif model.block_size:
        training = f"MARS-trained, B = {model.block_size}"
    else:
        training = "MARS-trained"
    weights = () if model.quantization == "none" else (f"{model.quantization} weights",)
    return " · ".join((model.name, training, *weights, model.dtype, model.device.upper()))


def model_details(model: ModelFacts) -> str:
    """What else there is to say of it: why this number format, what it takes, whose it is."""
    said = [
        f"{model.dtype}: {model.dtype_reason}" if model.dtype_reason else model.dtype,
        f"weights {model.weight_bytes / 1e6:,.0f} MB",
        f"cache {model.entry_bytes / 1e3:,.0f} kB per token",
    ]
    if model.licence:
        said.append(f"licence: {model.licence}")
    return "; ".join(said)


def notices(model: ModelFacts) -> list[str]:
    """What a visitor should know before judging the output, most important first."""
    found = []
    if not model.trained:
        found.append(
            "Not trained for MARS: these base weights never learned to predict from masks. "
            "At high tau expect about one token per forward."
        )
    if model.quantization_note:
        found.append(f"{model.quantization_note[0].upper()}{model.quantization_note[1:]}.")
    if model.licence == UNKNOWN_LICENCE:
        found.append(f"The licence of these weights is {model.licence}.")
    if model.parameters < SMALL_MODEL_PARAMETERS:
        size = f"{model.parameters / 1e6:.0f}M" if model.parameters >= 1e6 else "tiny"
        found.append(f"A {size} model is small and often wrong.")
    return found


def tau_note(mode: Mode, tau: float) -> str:
    """What the slider means at its present position."""
    if mode == "one":
        return "One token per pass: ordinary decoding, no masks. tau is not used."
    if mode == "verified":
        return "Masks draft, AR checks: the text of one-token decoding, exactly. tau is not used."
    if tau >= 1:
        return "Exact: one token per pass, enforced. The text is that of one-token decoding."
    if tau <= 0:
        return "Any confidence is enough."
    return f"A further token is accepted while its confidence is at least {tau:g}."


def waiting_text(ahead: int) -> str:
    """Why a run has not begun: `ahead` runs, the one going on included, have the model first."""
    if ahead == 0:
        return "Waiting for the model …"
    if ahead == 1:
        return "Waiting for the model: you are next, after the run that is going on."
    return f"Waiting for the model: number {ahead} in line."


def sentence(error: MarsError) -> str:
    """The error as a sentence: capitalised, with a full stop."""
    text = str(error).strip()
    if text.split(" ", 1)[0].isalpha():  # a name stays as it is
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def head_html(line: str, reason: str = "") -> str:
    """Title and a line about the model. Escaped: a model's name may come from a folder's.

    reason: why it computes in its number format, for whoever points at the line.
    """
    return (
        '<div class="studio-head"><h1><span class="studio-mark" aria-hidden="true"></span>'
        f'MARS Studio</h1><p title="{escape(reason)}">{escape(line)}</p></div>'
    )


def choice_label(entry: ModelEntry) -> str:
    """A catalogued model in a list, e.g. "mars-qwen2.5-7b · B = 4 · licence unknown"."""
    trained = () if entry.block_size is None else (f"B = {entry.block_size}",)
    licence = "licence unknown" if entry.licence == UNKNOWN_LICENCE else entry.licence
    return " · ".join((entry.name, *trained, licence))


def choice_html(text: str) -> str:
    """A sentence under the choice of a model."""
    return f'<p class="studio-note" role="status">{escape(text)}</p>'


def notices_html(texts: Iterable[str]) -> str:
    """What `notices` found, one quiet paragraph each."""
    lines = "".join(f"<p>{escape(text)}</p>" for text in texts)
    return f'<div class="studio-notices" role="note">{lines}</div>'


def note_html(mode: Mode, tau: float) -> str:
    """The sentence under the slider."""
    return f'<p class="studio-note">{escape(tau_note(mode, tau))}</p>'
