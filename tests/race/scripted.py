"""Races of written-down passes: what the tests of recordings, verdicts and the page share."""

from __future__ import annotations

from dataclasses import replace

from mars_core import trace
from mars_core.cache import Session
from mars_core.config import Caching, DecodeConfig, SpecialTokens
from mars_core.control import LiveControl
from mars_core.decode import decode_batch
from mars_core.race.measure import Entrant, race
from mars_core.race.records import BatchInfo
from mars_core.recorder import BatchRecorder
from mars_core.row import Request
from mars_core.text import TokenText
from mars_core.trace import Message
from tests.scripted import MASK_ID, ScriptedModel
from tests.tiny import tiny_tokenizer
from tests.ui.scripted import EOS, ScriptedEngine, header

SAID = [Message(role="user", content="Go.")]
ONE_BY_ONE = [["Once"], [" upon"], [" a"], [" time"], ["."], [EOS]]
SEVERAL = [["Once", " upon", " a"], [" time", "."], [EOS]]
OTHER = [["Once", " upon"], [" no", " time", "."], [EOS]]


def entrant(name, passes, *, ms=10.0, **options):
    """ms: of each forward, or one number for each run, in turn."""
    engine = ScriptedEngine(passes, **options)
    runs = iter(ms) if isinstance(ms, (list, tuple)) else None

    def run(control):
        each = next(runs) if runs else ms
        for record in engine.generate(SAID, DecodeConfig(), control):
            if record.type == "step":
                record = record.model_copy(update={"ms": each})
            if record.type == "done":
                record = record.model_copy(update={"decode_ms": each * record.forwards})
            yield record

    return Entrant(name, f"About {name}.", run)


def raced(*entrants, repeats=1, control=None):
    """The records of a race."""
    return list(race(entrants, repeats, control or LiveControl(DecodeConfig())))


def batch_entrant(name, caching, *, masks=lambda place: True):
    """Two rows at once of three, their texts written down; masks: where masks are right."""
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode("one two three four and five and six", add_special_tokens=False)

    def predict(place, is_mask):
        return ids[(place + 7 * (is_mask and not masks(place))) % len(ids)], 50.0

    def run(control):
        config = DecodeConfig(tau=0.5, alternatives=1)
        prompts = [
            trace.Prompt(messages=tuple(SAID), text="Go.", tokens=length) for length in (1, 2, 3)
        ]
        requests = [
            Request([7] * length, replace(config, max_new_tokens=5 + 2 * length))
            for length in (1, 2, 3)
        ]
        session = Session(ScriptedModel(predict, vocab=400), 100, rows=2)
        special = SpecialTokens(MASK_ID, frozenset())
        recorder = BatchRecorder(TokenText(tokenizer), tokenizer, prompts)
        yield header(SAID, config).model_copy(update={"prompt": None})
        for event in decode_batch(session, requests, special, caching):
            yield recorder.record(event, 10.0)

    return Entrant(name, f"About {name}.", run)


def raced_batches(repeats=1):
    """The records of a race of batches."""
    wrong = batch_entrant("Block", Caching("block", 4), masks=lambda place: place % 3)
    entrants = [batch_entrant("AR", Caching()), wrong]
    batch = BatchInfo(prompts=3, rows=2)
    return list(race(entrants, repeats, LiveControl(DecodeConfig()), batch))
