"""The decode loops: generators of typed events, one forward per step.

Counting, everywhere the same: prefill covers all prompt tokens but the last and is not a
forward; EOS counts as a token; with one token per forward, tokens == forwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Protocol

from mars_core.acceptance import accepted_by_tau
from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.control import Control, LiveControl, LiveSettings
from mars_core.drafting import Drafter, Planner, Proposal
from mars_core.errors import MarsError
from mars_core.events import (
    Committed,
    ControlChanged,
    Done,
    Draft,
    Event,
    Hindsight,
    Prefill,
    Reason,
    Slot,
    Step,
    Verdict,
)
from mars_core.sampling import Reader, Reading
from mars_core.window import Window


class StopCheck(Protocol):
    """Watches one row's tokens for a stop string."""

    def push(self, token: int) -> bool:
        """Take the next committed token; True when it completes a stop string."""
        ...


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
    check_prompt(prompt, session.max_length)
    control = control or LiveControl(config)
    reader = Reader(config, suppressed_ids(special))
    ids = list(prompt)
    pending = ids[-1:]  # committed, not yet in the cache
    unseen: list[tuple[int, int]] = []  # (forward, slot) of pending[1:]
    proposals: list[Proposal] = []
    planner = Planner(config, costs)
    settings = LiveSettings(config.mode, config.tau)
    forward = 0
    reason: Reason | None = None

    reused = session.prefill([ids[:-1]])[0]
    yield Prefill(row=0, tokens=len(ids) - 1 - reused, reused=reused)

    while reason is None:
        # 1. what is wanted now
        before, settings = settings, control.read()
        if settings.stop:
            reason = "stopped"
            break
        if (settings.mode, settings.tau) != (before.mode, before.tau):
            yield ControlChanged(0, forward + 1, settings.mode, settings.tau)
        forward += 1

        # 2. one forward: committed tokens, drafts, masks, no more than there is room for
        room = min(config.max_new_tokens - len(ids) + len(prompt), session.max_length - len(ids))
        if drafter is not None:
            proposals = yield from drafter(ids, min(config.drafts, room - 1), forward)
            behind = range(len(proposals) + 1)
            groups = tuple(masks_for(settings, config, room - kept) for kept in behind)
        elif settings.mode == "verified":
            groups = planner.plan(proposals, len(pending), room)
        else:
            groups = (masks_for(settings, config, room),)
        drafts = proposals[: len(groups) - 1]
        window = Window(
            pending=tuple(pending),
            drafts=tuple(draft.token for draft in drafts),
            groups=groups,
            start=len(ids) - len(pending),
            mask_id=mask_token(special) if any(groups) else None,
        )
        fed = window.ids
        logits = session.forward(
            [fed], [window.positions], window.visibility, head_rows=range(len(fed))
        )[0]

        # 3. read the rows: hindsight, AR's own choices, then the masks behind the last one kept
        known = [*pending[1:], *window.drafts]
        history = ids[: window.start + 1]
        if drafts:
            seen = reader.read_window(logits[: window.real], history, known, row=0)
            own = seen[len(unseen) :]
            kept = drafts_kept(drafts, own)
            history = [*ids, *window.drafts[:kept], own[kept].token]
            masks = reader.read_window(logits[window.rows_of(kept)], history, (), row=0)
            slots = [own[kept], *masks]
        else:
            seen = reader.read_window(logits, history, known, row=0)
            kept, slots = 0, seen[len(unseen) :]
        hindsight = seen[: len(unseen)]

        # 4. commit, up to the token that ends the run
        candidates = [Committed(token, "draft", i) for i, token in enumerate(window.drafts[:kept])]
        candidates += as_tokens(slots[: accepted_slots(settings, slots)])
        tokens, reason = take(candidates, special, stop)
        said = max(0, len(tokens) - kept)  # of the slots; none where a draft ended the run
        session.commit([range(len(pending) + len(tokens) - said)])
        if reason is None:
            total = len(ids) + len(tokens)
            reason = limit_reached(total - len(prompt), total, config, session)
        yield Step(
            row=0,
            forward=forward,
            mode=settings.mode,
            tau=settings.tau,
            fed=len(fed),
            position=len(ids),
            slots=as_slots(slots, said),
            tokens=tokens,
            hindsight=tuple(
                Hindsight(*address, reading.token, reading.prob)
                for address, reading in zip(unseen, hindsight, strict=True)
            ),
            drafts=judged(drafts, len(tokens) - said, rejected=said > 0),
            group=kept if drafts or settings.mode == "verified" else None,
        )
        planner.learn(drafts, kept, len(tokens), len(fed))
        ids += [token.token for token in tokens]
        pending = [token.token for token in tokens[kept:]]
        unseen = [(forward, token.slot) for token in tokens[kept + 1 :]]
        proposals = [
            Proposal(slot.token, (forward, i), slot.prob, slot.confidence)
            for i, slot in enumerate(slots)
            if i >= said
        ]

    yield Done(row=0, reason=reason, tokens=len(ids) - len(prompt), forwards=forward)


def decode_batch(
    session: Session,
    prompts: Sequence[Sequence[int]],
    config: DecodeConfig,
    special: SpecialTokens,
    control: Control | None = None,
    stops: Sequence[StopCheck] | None = None,
) -> Iterator[Event]:
    """Decode many sequences together, one token per forward each (mode "one").

    A row that ends leaves the batch, so its cost ends with it. Row r draws its noise with row r
    as key whatever else is in the batch. `session` must have as many rows as there are prompts.
    Of `control` only stop matters: there are no masks to accept.

    Yields a Prefill per row, then a Step per row and forward, and a Done when a row ends.
    """
    for prompt in prompts:
        check_prompt(prompt, session.max_length)
    control = control or LiveControl(config)
    reader = Reader(config, suppressed_ids(special))
    sequences = [list(prompt) for prompt in prompts]
    active = list(range(len(prompts)))
    forward = 0

    reused = session.prefill([ids[:-1] for ids in sequences])
    for row in active:
        yield Prefill(row, len(prompts[row]) - 1 - reused[row], reused[row])

    while active:
        if control.read().stop:
            for row in active:
                yield Done(row, "stopped", len(sequences[row]) - len(prompts[row]), forward)
            return
        forward += 1
        current = [sequences[row] for row in active]
        logits = session.forward(
            [ids[-1:] for ids in current],
            [[len(ids) - 1] for ids in current],
            visibility=None,
            head_rows=(0,),
        )[:, 0]
        session.commit([(0,)] * len(active))
        readings = reader.read_rows(logits, current, [(row, len(sequences[row])) for row in active])
        ended: dict[int, Reason] = {}
        for row, reading in zip(active, readings, strict=True):
            ids = sequences[row]
            tokens, reason = take(as_tokens([reading]), special, stops[row] if stops else None)
            ids.append(reading.token)
            if reason is None:
                produced = len(ids) - len(prompts[row])
                reason = limit_reached(produced, len(ids), config, session)
            if reason is not None:
                ended[row] = reason
            yield Step(
                row=row,
                forward=forward,
                mode="one",
                tau=config.tau,
                fed=1,
                position=len(ids) - 1,
                slots=as_slots([reading], 1),
                tokens=tokens,
                hindsight=(),
            )
        for row, reason in ended.items():
            yield Done(row, reason, len(sequences[row]) - len(prompts[row]), forward)
        if ended:
            session.select([i for i, row in enumerate(active) if row not in ended])
            active = [row for row in active if row not in ended]


def check_prompt(prompt: Sequence[int], max_length: int) -> None:
    """Raise MarsError unless the prompt has a token and leaves room for one more."""
    if not prompt:
        raise MarsError("the prompt is empty; type something first")
    if len(prompt) >= max_length:
        raise MarsError(
            f"the prompt has {len(prompt)} tokens but the model's context is {max_length}; "
            "shorten it or start a new conversation"
        )


def suppressed_ids(special: SpecialTokens) -> tuple[int, ...]:
    """Ids that must never be emitted."""
    return () if special.mask_id is None else (special.mask_id,)


def masks_for(settings: LiveSettings, config: DecodeConfig, room: int) -> int:
    """The masks to be accepted by tau: one fewer than the slots to read, none in other modes.

    room: tokens that may still be produced; a slot behind them would be wasted.
    """
    return min(config.slots, room) - 1 if settings.mode == "tau" else 0


def mask_token(special: SpecialTokens) -> int:
    """The mask's id; MarsError where the model has none."""
    if special.mask_id is None:
        raise MarsError("this model has no mask token; name one with --mask-token or use mode one")
    return special.mask_id


def accepted_slots(settings: LiveSettings, slots: Sequence[Reading]) -> int:
    """How many of the slots the current mode accepts, before anything ends the run."""
    if settings.mode != "tau":
        return 1
    return accepted_by_tau(
        [slot.confidence for slot in slots], [slot.modal for slot in slots], settings.tau
    )


def drafts_kept(drafts: Sequence[Proposal], own: Sequence[Reading]) -> int:
    """How many drafts are what AR says itself; own[i] is its choice behind the first i."""
    agreed = takewhile(lambda pair: pair[0].token == pair[1].token, zip(drafts, own, strict=False))
    return len(list(agreed))


def judged(drafts: Sequence[Proposal], kept: int, *, rejected: bool) -> tuple[Draft, ...]:
    """The record of what was fed as drafts: the first `kept` became text.

    rejected: the one behind them was looked at; it was not where the text ended before it.
    """
    behind: Verdict = "rejected" if rejected else "unreached"

    def verdict(place: int) -> Verdict:
        return "kept" if place < kept else behind if place == kept else "unreached"

    return tuple(
        Draft(draft.token, draft.origin, draft.prob, verdict(place))
        for place, draft in enumerate(drafts)
    )


def as_tokens(accepted: Sequence[Reading]) -> list[Committed]:
    """Accepted slots as what they may become: the first is AR's own."""
    return [Committed(r.token, "slot" if slot else "ar", slot) for slot, r in enumerate(accepted)]


def take(
    accepted: Sequence[Committed], special: SpecialTokens, stop: StopCheck | None
) -> tuple[tuple[Committed, ...], Reason | None]:
    """The accepted tokens up to the one that ends the run, and why it ends (None: it goes on)."""
    for count, one in enumerate(accepted, 1):
        if one.token in special.eos_ids:
            return tuple(accepted[:count]), "eos"
        if stop is not None and stop.push(one.token):
            return tuple(accepted[:count]), "stop"
    return tuple(accepted), None


def limit_reached(
    produced: int, total: int, config: DecodeConfig, session: Session
) -> Reason | None:
    """Why a sequence of `total` tokens, `produced` of them new, can grow no further, if so."""
    if produced >= config.max_new_tokens:
        return "length"
    return "context" if total >= session.max_length else None


def as_slots(readings: Sequence[Reading], committed: int) -> tuple[Slot, ...]:
    """The record of a forward's slots; the first `committed` of them became text."""
    return tuple(
        Slot(i, r.token, r.prob, r.confidence, i < committed, r.alternatives)
        for i, r in enumerate(readings)
    )
