"""Model, decoder, text and stopwatch together: the one door for page, command line, benchmarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from statistics import median

import torch

from mars_core import trace
from mars_core.about import describe_device, library_versions, model_facts
from mars_core.batch import batch_session, widest
from mars_core.cache import Fed, Session
from mars_core.chat import ChatTurn, encode_chat
from mars_core.composition import ModelDrafter
from mars_core.config import Caching, DecodeConfig, Mode
from mars_core.control import Control, LiveControl
from mars_core.decode import CURSOR, decode, decode_batch
from mars_core.errors import MarsError
from mars_core.models.hardware import synchronizer
from mars_core.models.hush import quiet
from mars_core.models.load import LoadedModel
from mars_core.recorder import BatchRecorder, Recorder
from mars_core.row import Request, check_prompt, mask_token
from mars_core.sampling import Reader
from mars_core.stopwatch import Stopwatch
from mars_core.text import Detokenizer, StopStrings, TokenText

# what forwards are measured for whoever weighs rows against tokens: rows of one sequence, and
# sequences besides the batch itself
COST_ROWS = (1, 2, 4, 9, 16, 25)
COST_BATCHES = (1, 4, 16, 64)
COST_REPEATS = (5, 15)  # at least, and at most while not so many seconds are over
COST_SECONDS = 1.0
CACHED_TOKENS = 128  # in front of every forward that is measured: attention is part of its cost


class Engine:
    """A loaded model that answers conversations with trace records.

    One run at a time: a second waits for the first to end or to be closed, so one thread must not
    take two in turn. The KV cache is kept between runs: a conversation that goes on prefills only
    what is new.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        clock: Callable[[], float] = time.perf_counter,
        *,
        draft: LoadedModel | None = None,
        draft_mode: Mode = "one",
    ) -> None:
        """draft: a second model that drafts for the first, decoding in `draft_mode`."""
        if draft is not None:
            check_same_tokens(loaded, draft)
            if draft_mode != "one":
                mask_token(draft.special)
        self.loaded = loaded
        self._draft, self._draft_mode = draft, draft_mode
        self._draft_session = draft.session() if draft else None
        self.stopwatch = Stopwatch(clock, synchronizer(loaded.device))
        self._tokens = TokenText(loaded.tokenizer)
        self._session = loaded.session()
        self._turn = threading.Lock()
        self._batch: Session | None = None  # the last one, if its forwards are compiled
        self._warm: set[int] = set()
        # by places, sequences in them, and rows of each
        self._costs: dict[tuple[int, int, int], float] = {}

    def generate(
        self,
        messages: Sequence[ChatTurn],
        config: DecodeConfig,
        control: Control | None = None,
    ) -> Iterator[trace.AnyRecord]:
        """Decode the assistant's answer; the trace: header, prefill, steps, done.

        Milliseconds are those of the decoder's steps alone, after a warm-up. Closing the generator
        ends the run at once and leaves the engine ready. Raises MarsError for bad input, at once.
        """
        ids, prompt = self.encode(messages, config)
        return self._run(ids, prompt, config, control or LiveControl(config))

    def generate_batch(
        self,
        conversations: Sequence[Sequence[ChatTurn]],
        config: DecodeConfig,
        rows: int,
        caching: Caching = CURSOR,
        controls: Sequence[Control] | None = None,
    ) -> Iterator[trace.AnyRecord]:
        """Answer many conversations, `rows` at once; the trace of all.

        controls: one for each conversation. Milliseconds are as in `generate`; the rows of a
        forward share them. Raises MarsError for bad input, and for a cache that does not fit into
        memory, at once.
        """
        asked = [self.encode(messages, config) for messages in conversations]
        requests = [
            Request(ids, config, controls[i] if controls else None, self._stop(config))
            for i, (ids, _) in enumerate(asked)
        ]
        session = batch_session(self.loaded, requests, rows, caching, self._batch)
        if self.loaded.compiled:  # for the buffers of another, graphs would be recorded anew
            self._batch = session
        return self._run_batch(session, requests, [prompt for _, prompt in asked], caching)

    def _run_batch(
        self,
        session: Session,
        requests: Sequence[Request],
        prompts: Sequence[trace.Prompt],
        caching: Caching,
    ) -> Iterator[trace.AnyRecord]:
        if not requests:
            return
        config = requests[0].config
        with self._turn:
            session.forget()  # of an earlier batch, if that was not read to its end
            costs = self._warm_up_batch(config, session)
            yield batch_header(self.loaded, config, session, caching, costs)
            recorder = BatchRecorder(self._tokens, self.loaded.tokenizer, prompts)
            events = decode_batch(session, requests, self.loaded.special, caching, costs)
            for event, ms in self.stopwatch.timed(events):
                yield recorder.record(event, ms)

    def _warm_up_batch(
        self, config: DecodeConfig, session: Session
    ) -> dict[int, dict[int, float]] | None:
        """Run the forwards of such a batch once; what they cost, where that is asked for."""
        rows = session.rows
        paced = config.adaptive_masks and config.mode == "tau"
        if not paced and not (config.adaptive and config.mode == "verified"):
            for width in {1, config.slots, 2 * config.slots}:
                forward_of(self.loaded, width, rows, self._places(session))
            return None
        # wider ones are taken to cost as much more as these do; the step from 1 to 2 is one of its
        # own: products with a single row are made by other code
        widths = sorted({1, 2, config.slots, min(widest(config), COST_ROWS[-1])})
        return self._measured([*(n for n in COST_BATCHES if n < rows), rows], widths, session)

    def _measured(
        self, batches: Sequence[int], widths: Sequence[int], session: Session
    ) -> dict[int, dict[int, float]]:
        """Milliseconds of a forward, by its sequences and the rows of each; measured once."""
        found: dict[int, dict[int, float]] = {}
        for n in batches:
            # a batch with places to spare is not compiled
            places = session.rows if self.loaded.compiled else n
            missing = [width for width in widths if (places, n, width) not in self._costs]
            shared = self._places(session) or self.loaded.session(n, CACHED_TOKENS + max(widths))
            forwards = {width: forward_of(self.loaded, width, n, shared) for width in missing}
            for width, ms in self._in_turn(forwards).items():
                self._costs[places, n, width] = round(ms, 3)
            found[n] = {width: self._costs[places, n, width] for width in widths}
        return found

    def _in_turn(self, forwards: Mapping[int, Callable[[], None]]) -> dict[int, float]:
        """Median milliseconds."""
        rounds: list[dict[int, float]] = []
        fewest, most = COST_REPEATS
        spent = 0.0
        while len(rounds) < (most if spent < COST_SECONDS else fewest):
            rounds.append(self.stopwatch.in_turn(forwards))
            spent += sum(rounds[-1].values()) / 1000
        return {width: median(one[width] for one in rounds) for width in forwards}

    def _stop(self, config: DecodeConfig) -> StopStrings | None:
        """A fresh watch for the stop strings, if there are any."""
        return StopStrings(self.loaded.tokenizer, config.stop) if config.stop else None

    def forget(self) -> None:
        """Empty the KV cache, so that the next prompt is computed as if it were the first."""
        with self._turn:
            self._session.forget()

    def encode(
        self, messages: Sequence[ChatTurn], config: DecodeConfig
    ) -> tuple[list[int], trace.Prompt]:
        """Token ids of the conversation, and what a trace says of it.

        Raises MarsError for whatever could not be decoded under `config`; costs no forward.
        """
        with quiet():  # a prompt that is too long gets our own words below
            ids, text = encode_chat(self.loaded.tokenizer, messages)
        check_prompt(ids, self.loaded.context_length)
        if config.mode == "verified" or (config.mode == "tau" and config.slots > 1):
            mask_token(self.loaded.special)
        said = tuple(trace.Message(role=m.role, content=m.content) for m in messages)
        return ids, trace.Prompt(messages=said, text=text, tokens=len(ids))

    def _run(
        self, ids: list[int], prompt: trace.Prompt, config: DecodeConfig, control: Control
    ) -> Iterator[trace.AnyRecord]:
        stop = self._stop(config)
        with self._turn:
            self.warm_up(config)
            recorder = Recorder(self._tokens, Detokenizer(self.loaded.tokenizer))
            costs = {width: ms for (places, _, width), ms in self._costs.items() if places == 1}
            yield header(self.loaded, prompt, config, costs, self._draft)
            special, drafter = self.loaded.special, self._drafter(config)
            events = decode(self._session, ids, config, special, control, stop, costs, drafter)
            for event, ms in self.stopwatch.timed(events):
                yield recorder.record(event, ms)

    def _drafter(self, config: DecodeConfig) -> ModelDrafter | None:
        """What drafts for a run, with its sampling and its tau."""
        if self._draft is None or self._draft_session is None:
            return None
        size = self._draft.block_size or config.block_size
        own = replace(config, mode=self._draft_mode, block_size=size, alternatives=0, stop=())
        return ModelDrafter(self._draft_session, own, self._draft.special)

    def warm_up(self, config: DecodeConfig) -> None:
        """Run the forwards this configuration will run, once, so that none is timed cold."""
        if config.mode == "verified" or config.adaptive_masks:
            self._measured([1], COST_ROWS, self._session)
        if config.slots not in self._warm:
            for width in (1, config.slots, 2 * config.slots):
                forward_of(self.loaded, width, 1, self._places(self._session))()
                if self._draft is not None:
                    forward_of(self._draft, width)()
            self._warm.add(config.slots)

    def _places(self, session: Session) -> Session | None:
        """Where forwards are tried that are going to be run in `session`: there, if compiled.

        Graphs are recorded for its buffers alone; whatever it holds is lost, so else not there.
        """
        return session if self.loaded.compiled else None


def forward_of(
    loaded: LoadedModel, rows: int, sequences: int = 1, session: Session | None = None
) -> Callable[[], None]:
    """A forward of so many rows each behind CACHED_TOKENS, warm, to be called again and again.

    All its rows are read, which is part of what masks cost.

    Of both as many as the context has room for. session: one whose places to use; what it holds is
    forgotten.
    """
    rows = min(rows, loaded.context_length)
    cached = min(CACHED_TOKENS, loaded.context_length - rows)
    if session is None:
        session = loaded.session(sequences, cached + rows)
    session.forget()
    session.prefill([[0]] * sequences)  # makes the buffers: without, nothing is compiled
    fed = Fed([0] * rows, range(cached, cached + rows), head=range(rows))
    reader, count = Reader(DecodeConfig(), ()), rows * sequences

    def forward() -> None:
        session.assume([[0] * cached] * sequences)
        logits = torch.cat(session.forward([fed] * sequences))
        reader.read_rows(logits, [()] * count, [(0, 0)] * count)
        session.forget()

    for _ in range(loaded.first_runs):
        forward()
    return forward


def check_same_tokens(loaded: LoadedModel, draft: LoadedModel) -> None:
    """Raise MarsError unless both models mean the same by every token id."""
    if loaded.tokenizer.get_vocab() != draft.tokenizer.get_vocab():
        raise MarsError(
            f"{draft.name} cannot draft for {loaded.name}: they do not have the same tokens"
        )


def header(
    loaded: LoadedModel,
    prompt: trace.Prompt | None,
    config: DecodeConfig,
    costs: Mapping[int, float] | None = None,
    draft: LoadedModel | None = None,
) -> trace.Header:
    """The first record of a run: everything needed to say how its numbers came about."""
    length = min((prompt.tokens if prompt else 0) + config.max_new_tokens, loaded.context_length)
    cache = length * loaded.entry_bytes
    return trace.Header(
        type="header",
        format="mars-trace",
        version=trace.VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=trace.ModelInfo(**model_facts(loaded)),
        draft_model=None if draft is None else trace.ModelInfo(**model_facts(draft)),
        dtype=loaded.dtype_name,
        dtype_reason=loaded.dtype_reason,
        device=describe_device(loaded),
        versions=library_versions(),
        memory={"weights": loaded.weight_bytes, "cache": cache},
        prompt=prompt,
        settings={**asdict(config), "stop": list(config.stop)},  # as JSON gives it back
        seed=config.seed,
        costs={str(rows): ms for rows, ms in costs.items()} if costs else None,
    )


def batch_header(
    loaded: LoadedModel,
    config: DecodeConfig,
    session: Session,
    caching: Caching,
    costs: Mapping[int, Mapping[int, float]] | None,
) -> trace.Header:
    """The same of a batch; its prompts come with the rows."""
    table = {f"{n}x{width}": ms for n, row in (costs or {}).items() for width, ms in row.items()}
    about = {"rows": session.rows, "cache": caching.strategy, "cache_tokens": session.capacity}
    if caching.strategy == "block":
        about["cache_block"] = caching.cache_block
    plain = header(loaded, None, config)
    return plain.model_copy(
        update={
            "settings": {**plain.settings, **about, "cache_bytes": session.bytes},
            "memory": {"weights": loaded.weight_bytes, "cache": session.bytes},
            "costs": table or None,
        }
    )
