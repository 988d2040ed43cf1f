"""Events to trace records: text and milliseconds are added here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from mars_core import trace
from mars_core.events import (
    ControlChanged,
    Done,
    Drafted,
    Event,
    Extended,
    Idle,
    Joined,
    Left,
    Prefill,
    Slot,
    Step,
)
from mars_core.text import Detokenizer, TokenText

SHOWN_DIGITS = 6


class Recorder:
    """Adds text and milliseconds to the events of one row, which makes them trace records."""

    def __init__(
        self, tokens: TokenText, detokenizer: Detokenizer, prompt: trace.Prompt | None = None
    ) -> None:
        """prompt: told where the row joins a batch."""
        self._tokens = tokens
        self._detokenizer = detokenizer
        self._pieces: list[str] = []
        self._prompt = prompt
        self._prefill_ms = 0.0
        self._decode_ms = 0.0

    def record(self, event: Event, ms: float) -> trace.AnyRecord:
        """The record of `event`, which took `ms` milliseconds."""
        ms = round(ms, 3)
        match event:
            case Prefill():
                self._prefill_ms += ms
                return trace.PrefillRecord(
                    type="prefill",
                    row=event.row,
                    tokens=event.tokens,
                    reused=event.reused,
                    ms=ms,
                )
            case Step():
                self._decode_ms += ms
                return self._step(event, ms)
            case ControlChanged():
                return trace.ControlRecord(
                    type="control",
                    row=event.row,
                    forward=event.forward,
                    mode=event.mode,
                    tau=event.tau,
                )
            case Drafted():
                self._decode_ms += ms
                return trace.ForwardRecord(
                    type="forward",
                    role="draft",
                    rows=(event.row,),
                    forward=event.forward,
                    fed=event.fed,
                    ms=ms,
                )
            case Joined():
                assert self._prompt is not None
                return trace.JoinRecord(
                    type="join", row=event.row, forward=event.forward, prompt=self._prompt
                )
            case Idle():
                return trace.IdleRecord(type="idle", row=event.row, forward=event.forward)
            case Left():
                return trace.LeaveRecord(type="leave", row=event.row, forward=event.forward)
            case Extended():
                return trace.ForwardRecord(
                    type="forward",
                    role="extend",
                    rows=event.rows,
                    forward=event.forward,
                    fed=event.fed,
                    ms=ms,
                )
            case Done():
                return self._done(event)

    def waited(self, ms: float) -> None:
        """A forward of the batch took so long that told this row nothing of its own."""
        self._decode_ms += ms

    def _step(self, step: Step, ms: float) -> trace.StepRecord:
        label = self._tokens.label
        return trace.StepRecord(
            type="step",
            row=step.row,
            forward=step.forward,
            mode=step.mode,
            tau=step.tau,
            fed=step.fed,
            position=step.position,
            ms=ms,
            slots=tuple(map(self._slot, step.slots)),
            tokens=tuple(
                self._token(token.token, token.source, token.slot) for token in step.tokens
            ),
            **self._drafts(step),
            hindsight=tuple(
                trace.HindsightRecord(
                    forward=h.forward,
                    slot=h.slot,
                    ar_token=h.ar_token,
                    ar_text=label(h.ar_token),
                    ar_prob=round(h.ar_prob, SHOWN_DIGITS),
                )
                for h in step.hindsight
            ),
        )

    def _drafts(self, step: Step) -> dict[str, Any]:
        """What there is to record where drafts were verified."""
        if step.group is None:
            return {}
        drafts = tuple(
            trace.DraftRecord(
                id=draft.token,
                text=self._tokens.label(draft.token),
                verdict=draft.verdict,
                origin=None
                if draft.origin is None
                else trace.Address(forward=draft.origin[0], slot=draft.origin[1]),
                prob=draft.prob,
            )
            for draft in step.drafts
        )
        return {"drafts": drafts, "group": step.group}

    def _slot(self, slot: Slot) -> trace.SlotRecord:
        """Alternatives are for the eye and rounded; what is compared with tau is exact."""
        label = self._tokens.label
        return trace.SlotRecord(
            slot=slot.slot,
            id=slot.token,
            text=label(slot.token),
            prob=slot.prob,
            confidence=slot.confidence,
            accepted=slot.accepted,
            alternatives=tuple(
                trace.AlternativeRecord(id=i, text=label(i), prob=round(p, SHOWN_DIGITS))
                for i, p in slot.alternatives
            ),
        )

    def _token(self, token: int, source: trace.TokenSource, slot: int) -> trace.TokenRecord:
        text = self._detokenizer.push(token)
        self._pieces.append(text)
        name = self._tokens.special(token)
        named = {} if name is None else {"special": name}
        return trace.TokenRecord(id=token, text=text, source=source, slot=slot, **named)

    def _done(self, done: Done) -> trace.DoneRecord:
        tail = self._detokenizer.flush()
        return trace.DoneRecord(
            type="done",
            row=done.row,
            reason=done.reason,
            text="".join(self._pieces) + tail,
            tail=tail,
            tokens=done.tokens,
            forwards=done.forwards,
            prefill_ms=round(self._prefill_ms, 3),
            decode_ms=round(self._decode_ms, 3),
        )


class BatchRecorder:
    """The same for a batch: its rows share the milliseconds of a forward.

    What passes before a forward's first step, or before a prefill, is their time.
    """

    def __init__(
        self,
        tokens: TokenText,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[trace.Prompt],
    ) -> None:
        self._rows = [Recorder(tokens, Detokenizer(tokenizer), prompt) for prompt in prompts]
        self._forward = 0
        self._forward_ms = 0.0
        self._before_ms = 0.0

    def record(self, event: Event, ms: float) -> trace.AnyRecord:
        """The record of `event`, which took `ms` milliseconds since the one before."""
        self._before_ms += ms
        match event:
            case Step():
                if event.forward != self._forward:
                    self._forward, self._forward_ms = event.forward, self._passed()
                return self._rows[event.row].record(event, self._forward_ms)
            case Extended():
                ms = self._passed()
                for row in event.rows:
                    self._rows[row].waited(ms)
                return self._rows[event.rows[0]].record(event, ms)
            case Prefill():
                return self._rows[event.row].record(event, self._passed())
            case _:
                return self._rows[event.row].record(event, 0.0)

    def _passed(self) -> float:
        ms, self._before_ms = self._before_ms, 0.0
        return ms
