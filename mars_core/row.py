"""One sequence being decoded: what its next forward is fed, and what that forward said.

The model is called elsewhere (`mars_core.decode`), for one row or for many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

from mars_core.acceptance import accepted_by_tau
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.control import Control, LiveControl, LiveSettings
from mars_core.drafting import Drafter, Planner, Proposal
from mars_core.errors import MarsError
from mars_core.events import (
    Committed,
    ControlChanged,
    Done,
    Draft,
    Drafted,
    Hindsight,
    Reason,
    Slot,
    Step,
    Verdict,
)
from mars_core.sampling import Reader, Reading
from mars_core.window import Window

# what a forward says: (which of the rows that have logits, the tokens up to and including the first
# one's input, those known to follow it) -> their readings, as `sampling.Reader.read_window`
Read = Callable[[slice, Sequence[int], Sequence[int]], list[Reading]]


class StopCheck(Protocol):
    """Watches one row's tokens for a stop string."""

    def push(self, token: int) -> bool:
        """Take the next committed token; True when it completes a stop string."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt (token ids) and how it is to be answered; see `decode.decode`."""

    prompt: Sequence[int]
    config: DecodeConfig
    control: Control | None = None
    stop: StopCheck | None = None
    drafter: Drafter | None = None


class Row:
    """A sequence on its way. `number` keys its noise and its events.

    ids: prompt and text so far. cached: how many of them the cache holds; what is behind is fed
    again. reason: why it ended, once it has. forwards: those it took part in.
    """

    def __init__(
        self,
        number: int,
        request: Request,
        special: SpecialTokens,
        max_length: int,
        costs: Mapping[int, float] | None = None,
    ) -> None:
        """costs: milliseconds of a forward by the rows this sequence is fed (`drafting`)."""
        check_prompt(request.prompt, max_length)
        self.number = number
        self.ids = list(request.prompt)
        self.cached = 0
        self.reason: Reason | None = None
        self.forwards = 0
        self.settings = LiveSettings(request.config.mode, request.config.tau)
        self.planner = Planner(request.config, costs)
        self._request = request
        self._config = request.config
        self._special = special
        self._max_length = max_length
        self._control = request.control or LiveControl(request.config)
        self.reader = Reader(request.config, suppressed_ids(special))
        self._unseen: list[tuple[int, int]] = []  # (forward, slot) of the last tokens
        self._known: tuple[Hindsight, ...] = ()  # read, and not told yet
        self._proposals: list[Proposal] = []

    @property
    def pending(self) -> list[int]:
        """Tokens that the next forward is fed, since the cache does not hold them."""
        return self.ids[self.cached :]

    @property
    def produced(self) -> int:
        return len(self.ids) - len(self._request.prompt)

    @property
    def room(self) -> int:
        """Tokens that may still be produced."""
        return min(self._config.max_new_tokens - self.produced, self._max_length - len(self.ids))

    @property
    def done(self) -> Done:
        """How it ended."""
        assert self.reason is not None
        return Done(self.number, self.reason, self.produced, self.forwards)

    @property
    def paced(self) -> bool:
        """Whether how many masks it is fed is decided by their worth."""
        return self._config.adaptive_masks and self.settings.mode == "tau"

    @property
    def told_to_stop(self) -> bool:
        return self._control.read().stop

    def listen(self, forward: int) -> ControlChanged | None:
        """Read the control for `forward`: it may be to stop."""
        before, self.settings = self.settings, self._control.read()
        if self.settings.stop:
            self.reason = "stopped"
            return None
        mode, tau = self.settings.mode, self.settings.tau
        changed = (mode, tau) != (before.mode, before.tau)
        return ControlChanged(self.number, forward, mode, tau) if changed else None

    def window(
        self, forward: int, room: int, masks: int | None
    ) -> Generator[Drafted, None, Window]:
        """What `forward` is fed: committed tokens, drafts, masks, no more than there is room for.

        room: tokens it may commit. masks: at most so many in mode tau. Yields the forwards of a
        draft model.
        """
        config, mode = self._config, self.settings.mode
        if self._request.drafter is not None:
            count = min(config.drafts, room - 1)
            self._proposals = yield from self._request.drafter(self.ids, count, forward)
            behind = range(len(self._proposals) + 1)
            groups = tuple(self.masks(room - kept) for kept in behind)
        elif mode == "verified":
            groups = self.planner.plan(self._proposals, len(self.pending), room)
        else:
            wanted = self.masks(room)
            groups = (wanted if masks is None else min(wanted, masks),)
        drafts = self._proposals[: len(groups) - 1]
        return Window(
            pending=tuple(self.pending),
            drafts=tuple(draft.token for draft in drafts),
            groups=groups,
            start=self.cached,
            mask_id=mask_token(self._special) if any(groups) else None,
        )

    def masks(self, room: int) -> int:
        """The masks to be accepted by tau: one fewer than the slots to read, none in other modes.

        room: tokens that may be committed; a slot behind them would be wasted.
        """
        return min(self._config.slots, room) - 1 if self.settings.mode == "tau" else 0

    @property
    def unread(self) -> int:
        """The first of the pending tokens whose logits have not been read yet."""
        return len(self.pending) - 1 - len(self._unseen)

    def read(self, window: Window, read: Read, forward: int) -> tuple[Step, int]:
        """Take in what `forward` says; there are logits from row `unread` of its window on.

        The rows of the committed tokens give AR's own choices in hindsight, the last of them slot
        0, the masks the slots behind it. Drafts: kept up to AR's first other choice, then comes
        that choice, and the slots are those behind it.

        Returns the step, and how many rows of the window are text now and may be cached.
        """
        skipped = self.unread
        drafts = self._proposals[: len(window.drafts)]
        known = [*window.pending[skipped + 1 :], *window.drafts]
        history = self.ids[: window.start + skipped + 1]
        if drafts:
            seen = read(slice(window.real - skipped), history, known)
            own = seen[len(self._unseen) :]
            kept = drafts_kept(drafts, own)
            history = [*self.ids, *window.drafts[:kept], own[kept].token]
            behind = window.rows_of(kept)
            masks = slice(behind.start - skipped, behind.stop - skipped)
            slots = [own[kept], *read(masks, history, ())]
        else:
            seen = read(slice(None), history, known)
            kept, slots = 0, seen[len(self._unseen) :]
        hindsight = self._looked_back(seen)

        candidates = [Committed(token, "draft", i) for i, token in enumerate(window.drafts[:kept])]
        candidates += as_tokens(slots[: accepted_slots(self.settings, slots)])
        tokens = self._take(candidates)
        said = max(0, len(tokens) - kept)  # of the slots; none where a draft ended the run
        step = Step(
            row=self.number,
            forward=forward,
            mode=self.settings.mode,
            tau=self.settings.tau,
            fed=len(window.ids),
            position=len(self.ids),
            slots=as_slots(slots, said),
            tokens=tokens,
            hindsight=self._known + hindsight,
            drafts=judged(drafts, len(tokens) - said, rejected=said > 0),
            group=kept if drafts or self.settings.mode == "verified" else None,
        )
        self.planner.learn(drafts, kept, len(tokens), len(window.ids))
        self.forwards += 1
        self.ids += [token.token for token in tokens]
        if self.reason is None and self.room < 1:
            self.reason = "length" if self.produced >= self._config.max_new_tokens else "context"
        self._known = ()
        self._unseen = [(forward, token.slot) for token in tokens[kept + 1 :]]
        self._proposals = [
            Proposal(slot.token, (forward, i), slot.prob, slot.confidence)
            for i, slot in enumerate(slots)
            if i >= said
        ]
        return step, len(window.pending) + len(tokens) - said

    def look_back(self, read: Read) -> None:
        """Take in a forward of the pending tokens but the last; logits are as for `read`."""
        first = self.cached + self.unread
        seen = read(slice(None), self.ids[: first + 1], self.ids[first + 1 :])
        self._known += self._looked_back(seen)
        self._unseen = []
        self.forwards += 1

    def _looked_back(self, seen: Sequence[Reading]) -> tuple[Hindsight, ...]:
        """What AR says of the tokens that are not seen yet."""
        pairs = zip(self._unseen, seen, strict=False)
        return tuple(Hindsight(*address, reading.token, reading.prob) for address, reading in pairs)

    def _take(self, candidates: Sequence[Committed]) -> tuple[Committed, ...]:
        """Those up to the one that ends the run, if one does."""
        for count, one in enumerate(candidates, 1):
            if one.token in self._special.eos_ids:
                self.reason = "eos"
            elif self._request.stop is not None and self._request.stop.push(one.token):
                self.reason = "stop"
            if self.reason is not None:
                return tuple(candidates[:count])
        return tuple(candidates)


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


def as_slots(readings: Sequence[Reading], committed: int) -> tuple[Slot, ...]:
    """The record of a forward's slots; the first `committed` of them became text."""
    return tuple(
        Slot(i, r.token, r.prob, r.confidence, i < committed, r.alternatives)
        for i, r in enumerate(readings)
    )
