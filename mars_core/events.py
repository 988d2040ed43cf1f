"""What the decode loop decided, as small frozen values. No torch, no text, no colour, no clock.

Forwards are numbered from 1 within a run; prefill is not a forward. Slot 0 is the prediction of
the last committed token (AR's own choice), slot i that of the i-th mask (counted from 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mars_core.config import Mode

Source = Literal["ar", "slot", "draft"]
Verdict = Literal["kept", "rejected", "unreached"]
Reason = Literal["eos", "stop", "length", "context", "stopped"]


@dataclass(frozen=True, slots=True)
class Prefill:
    """All prompt tokens but the last are cached: `tokens` computed now, `reused` from before."""

    row: int
    tokens: int
    reused: int


@dataclass(frozen=True, slots=True)
class Slot:
    """One prediction of a forward, accepted or not.

    token, prob: what the slot would emit and its probability.
    confidence: the metric that is compared with tau.
    alternatives: (token, probability), most likely first.
    """

    slot: int
    token: int
    prob: float
    confidence: float
    accepted: bool
    alternatives: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """A token that became part of the text, and the slot (or the draft) it came from."""

    token: int
    source: Source
    slot: int


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What AR itself would have chosen where (forward, slot) was accepted from a mask.

    Known one forward later, when the token before it is fed as a real token. `ar_prob` is the
    probability of `ar_token`.
    """

    forward: int
    slot: int
    ar_token: int
    ar_prob: float


@dataclass(frozen=True, slots=True)
class Draft:
    """A token that was proposed and fed, for AR to say in the same forward whether it is its own.

    origin: (forward, slot) that proposed it; None: a draft model. prob: its probability there.
    """

    token: int
    origin: tuple[int, int] | None
    prob: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Step:
    """One forward of one row.

    mode, tau: in force for this forward. fed: token rows the model was given.
    position: place in the sequence (prompt included, from 0) of the first token committed.
    group: in mode verified, how many drafts were kept; slots are those behind the last of them.
    """

    row: int
    forward: int
    mode: Mode
    tau: float
    fed: int
    position: int
    slots: tuple[Slot, ...]
    tokens: tuple[Committed, ...]
    hindsight: tuple[Hindsight, ...]
    drafts: tuple[Draft, ...] = ()
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Drafted:
    """A forward of the draft model before `forward`; fed: token rows it was given."""

    row: int
    forward: int
    fed: int


@dataclass(frozen=True, slots=True)
class Extended:
    """A forward that only takes finished blocks into a block cache; fed: token rows of each."""

    rows: tuple[int, ...]
    forward: int
    fed: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A row takes a place in the batch; `forward` is its first."""

    row: int
    forward: int


@dataclass(frozen=True, slots=True)
class Idle:
    """A row waits during `forward`: it has filled its block, others have not (block cache)."""

    row: int
    forward: int


@dataclass(frozen=True, slots=True)
class Left:
    """A row that has ended frees its place after `forward`."""

    row: int
    forward: int


@dataclass(frozen=True, slots=True)
class ControlChanged:
    """Mode or tau was moved while running; in force from `forward` on."""

    row: int
    forward: int
    mode: Mode
    tau: float


@dataclass(frozen=True, slots=True)
class Done:
    """The row ended: on EOS, a stop string, its token limit, the context's end, or on request."""

    row: int
    reason: Reason
    tokens: int
    forwards: int


Event = Prefill | Step | Drafted | Extended | Joined | Idle | Left | ControlChanged | Done
