"""Races of written-down passes: what the tests of recordings, verdicts and the page share."""

from __future__ import annotations

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.race.measure import Entrant, race
from mars_core.trace import Message
from tests.ui.scripted import EOS, ScriptedEngine

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
