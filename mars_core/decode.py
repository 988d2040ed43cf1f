"""The decode loop: a generator of typed events, one forward per step, for one sequence or many.

Counting, everywhere the same: prefill covers all prompt tokens but the last and is not a
forward; EOS counts as a token; with one token per forward, tokens == forwards.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import torch

from mars_core.cache import Fed, Session
from mars_core.config import Caching, DecodeConfig, SpecialTokens
from mars_core.control import Control
from mars_core.drafting import Drafter, per_row
from mars_core.errors import MarsError
from mars_core.events import Event, Extended, Idle, Joined, Left, Prefill
from mars_core.pacing import Pacer, Wish
from mars_core.row import Read, Request, Row, StopCheck
from mars_core.sampling import Reading
from mars_core.window import Window

CURSOR = Caching()
NOTHING = Fed((0,), (0,))  # what a row is fed that waits while others go on


def decode(
    session: Session,
    prompt: Sequence[int],
    config: DecodeConfig,
    special: SpecialTokens,
    control: Control | None = None,
    stop: StopCheck | None = None,
    costs: Mapping[int, float] | None = None,
    drafter: Drafter | None = None,
) -> Iterator[Event]:
    """Decode one sequence with MARS; plain AR is the same loop with no masks (mode "one").

    Each forward feeds the tokens committed by the last one, then the masks. The rows of the
    committed tokens give AR's own choices in hindsight, the last of them slot 0, the masks the
    slots behind it. `control` is read before every forward.

    In mode "verified" what the masks of the last forward predicted is fed as drafts between the
    two. Their rows say what AR would say: the drafts up to its first other choice are kept, then
    comes that choice, and the slots are those behind it. Every token is AR's own, so the text is
    that of mode "one"; when sampling too, since a position's noise is the same for all.
    costs: milliseconds of a forward by its rows, to weigh drafts and masks by (`drafting`).
    drafter: another model drafts instead, in every mode; in mode "tau" there are masks behind each
    draft too, accepted by tau as ever behind the last one kept (section 4.6 of the paper).

    The session's cache is reused where it already holds a prefix of `prompt`, and covers
    committed tokens only at every event: the generator may be closed at any of them and decoding
    continued from the tokens so far.

    Yields Prefill, then Step (and ControlChanged, Drafted), then Done. Raises MarsError for an
    empty or too long prompt, and for masks where the model has no mask token.
    """
    request = Request(prompt, config, control, stop, drafter)
    for event in decode_batch(session, [request], special, costs={1: costs} if costs else None):
        if not isinstance(event, Joined | Left):
            yield event


def decode_batch(
    session: Session,
    requests: Sequence[Request],
    special: SpecialTokens,
    caching: Caching = CURSOR,
    costs: Mapping[int, Mapping[int, float]] | None = None,
) -> Iterator[Event]:
    """Decode many sequences, as many at once as `session` has places, each as `decode` would.

    A row that ends leaves, and the next that waits takes a place: at once, or with the block cache
    at the end of a block. There a row commits at most `cache_block` tokens, waits for the others to
    do so (Idle), and one more forward takes the finished blocks into the cache (Extended).
    costs: milliseconds of a forward by sequences and by rows of each.

    Forwards are counted for the batch, from 1; those of a row (in its Done) are the ones it took
    part in. Row r draws its noise with r as key, whatever is beside it.

    Yields per row what `decode` does, between Joined and Left (rows that end last just end).
    Raises MarsError as `decode` does, and for mode verified with a block cache.
    """
    share = per_row(costs, min(session.rows, len(requests))) if costs else None
    waiting = deque(
        Row(number, request, special, session.max_length, share)
        for number, request in enumerate(requests)
    )
    active: list[Row] = []  # by their places
    forward = 0
    keeps = caching.strategy == "cursor"
    block = caching.cache_block if caching.strategy == "block" else None
    pacer = Pacer(costs) if costs and any(one.config.adaptive_masks for one in requests) else None

    while True:
        # 1. where no row is in the middle of a block, the ended leave and the waiting enter
        if block is None or all(room_of(row, block) < 1 for row in active):
            if not waiting and all(row.reason for row in active):
                return
            yield from let_leave(session, active, forward)
            if block and active:
                forward += 1
                yield extend(session, active, forward)
            yield from let_enter(session, active, waiting, forward, caching)

        # 2. what is wanted now
        for row in active:
            if row.reason is None:
                if changed := row.listen(forward + 1):
                    yield changed
                if block and row.settings.mode == "verified":
                    raise MarsError("drafts cannot be verified with a block cache; use cursor")
                if row.reason:
                    yield row.done
        feeding = [row for row in active if room_of(row, block)]
        if not feeding:
            continue
        forward += 1
        for row in active:
            if row.reason is None and row not in feeding:
                yield Idle(row.number, forward)

        # 3. one forward: committed tokens, drafts, masks; rows that wait are fed nothing
        masks = paced(pacer, feeding, block, len(active)) if pacer else {}
        windows: dict[Row, Window] = {}
        for row in feeding:
            windows[row] = yield from row.window(
                forward, room_of(row, block), masks.get(row.number)
            )
        fed = [windows[row].fed(row.unread) if row in windows else NOTHING for row in active]
        reads = readers(active, fed, session.forward(fed))

        # 4. read, commit, tell
        kept = [0] * len(active)
        steps = []
        for place, (row, read) in enumerate(zip(active, reads, strict=True)):
            if row in windows:
                step, settled = row.read(windows[row], read, forward)
                steps.append((row, step))
                kept[place] = settled if keeps else 0
                row.cached += kept[place]
        session.commit([range(count) for count in kept])
        if pacer:
            told = [step for row, step in steps if row.paced]
            pacer.learn(told, max(len(one.ids) for one in fed), len(active))
        for row, step in steps:
            yield step
            if row.reason:
                yield row.done


def room_of(row: Row, block: int | None) -> int:
    """Tokens a row may commit before it ends or has to wait for the others."""
    if row.reason is not None:
        return 0
    return row.room if block is None else min(row.room, block - len(row.pending) + 1)


def paced(pacer: Pacer, rows: Sequence[Row], block: int | None, sequences: int) -> dict[int, int]:
    """Masks of the rows that leave their number to the pacer."""
    wishes, width = [], 1
    for row in rows:
        real, masks = len(row.pending), row.masks(room_of(row, block))
        if row.paced:
            wishes.append(Wish(row.number, row.settings.tau, real, masks))
        else:
            width = max(width, real + masks)
    return pacer.masks(wishes, width, sequences)


def let_leave(session: Session, active: list[Row], forward: int) -> Iterator[Event]:
    """Free the places of the rows that have ended; the last ones move up."""
    for place in reversed(range(len(active))):
        if active[place].reason is not None:
            yield Left(active[place].number, forward)
            session.leave(place)
            active[place] = active[-1]
            active.pop()


def let_enter(
    session: Session, active: list[Row], waiting: deque[Row], forward: int, caching: Caching
) -> Iterator[Event]:
    """Give the free places to rows that wait, their prompts but the last token in the cache."""
    entering: list[Row] = []
    while waiting and len(active) + len(entering) < session.rows:
        row = waiting.popleft()
        if forward and row.told_to_stop:  # while it waited
            row.reason = "stopped"
            yield row.done
        else:
            entering.append(row)
    if not entering:
        return
    for row in entering:
        row.cached = 0 if caching.strategy == "none" else len(row.ids) - 1
    reused = session.prefill([row.ids[: row.cached] for row in entering], first=len(active))
    active += entering
    for row, tokens in zip(entering, reused, strict=True):
        yield Joined(row.number, forward + 1)
        yield Prefill(row.number, row.cached - tokens, tokens)


def extend(session: Session, active: Sequence[Row], forward: int) -> Extended:
    """One forward that takes the finished block of every row into the cache, but its last token."""
    fed = [
        Fed(
            row.pending[:-1],
            range(row.cached, len(row.ids) - 1),
            head=range(row.unread, len(row.pending) - 1),
        )
        for row in active
    ]
    reads = readers(active, fed, session.forward(fed))
    for row, read in zip(active, reads, strict=True):
        row.look_back(read)
        row.cached = len(row.ids) - 1
    session.commit([range(len(one.ids)) for one in fed])
    return Extended(tuple(row.number for row in active), forward, max(len(x.ids) for x in fed))


def readers(rows: Sequence[Row], fed: Sequence[Fed], logits: Sequence[torch.Tensor]) -> list[Read]:
    """How each row reads its logits.

    Those whose readings depend on nothing but logits are read all at once: a softmax over a
    vocabulary is dear, row by row.
    """
    reads: list[Read] = [
        partial(read_alone, row, lines) for row, lines in zip(rows, logits, strict=True)
    ]
    alike: dict[object, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        if fed[place].head and not row.reader.looks_back:
            alike[row.reader.way].append(place)
    for places in alike.values():
        if len(places) > 1:
            keys = [
                (rows[place].number, fed[place].positions[i] + 1)
                for place in places
                for i in fed[place].head
            ]
            together = torch.cat([logits[place] for place in places])
            said = iter(rows[places[0]].reader.read_rows(together, [()] * len(keys), keys))
            for place in places:
                reads[place] = partial(pick, list(islice(said, len(fed[place].head))))
    return reads


def read_alone(
    row: Row,
    logits: torch.Tensor,
    picked: slice,
    history: Sequence[int],
    known: Sequence[int],
) -> list[Reading]:
    """Read the picked rows of one sequence's logits."""
    return row.reader.read_window(logits[picked], history, known, row=row.number)


def pick(
    readings: Sequence[Reading], picked: slice, history: Sequence[int], known: Sequence[int]
) -> list[Reading]:
    """Those of the picked rows, which were read before."""
    return list(readings[picked])
