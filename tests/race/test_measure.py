"""One lane at a time, each alone, and in turn."""

from __future__ import annotations

import pytest

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.race.measure import Entrant, race
from tests.race.scripted import ONE_BY_ONE, SEVERAL, entrant, raced


def test_what_a_race_is_made_of():
    records = raced(entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL), repeats=2)
    assert [record.type for record in records] == [
        "race",
        *("lane", "header", "prefill", *["step"] * 6, "done"),
        *("lane", "header", "prefill", *["step"] * 3, "done"),
        *("timing", "timing", "verdict"),
    ]
    assert [lane.name for lane in records[0].lanes] == ["AR", "MARS"]
    timings = [record for record in records if record.type == "timing"]
    assert [(t.lane, t.repeat, t.tokens, t.forwards) for t in timings] == [
        (0, 1, 6, 6),
        (1, 1, 6, 3),
    ]


def test_no_two_lanes_run_at_the_same_time():
    running, most, order = [], [], []

    def runner(name, passes):
        inner = entrant(name, passes).run

        def run(control):
            running.append(name)
            most.append(len(running))
            order.append(name)
            try:
                yield from inner(control)
            finally:
                running.remove(name)

        return Entrant(name, "", run)

    raced(runner("a", ONE_BY_ONE), runner("b", SEVERAL), runner("c", SEVERAL), repeats=2)
    assert max(most) == 1
    assert order == list("abcabc")


def test_closing_a_race_closes_its_run():
    closed = []

    def run(control):
        try:
            yield from entrant("AR", ONE_BY_ONE).run(control)
        finally:
            closed.append(True)

    records = race([Entrant("AR", "", run)], 1, LiveControl(DecodeConfig()))
    while next(records).type != "step":
        pass
    records.close()
    assert closed == [True]


@pytest.mark.parametrize("after", [0, 3])
def test_stop(after):
    """Before the first lane, or between its forwards."""
    control = LiveControl(DecodeConfig())
    records = []
    if not after:
        control.stop()
    for record in race([entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL)], 1, control):
        records.append(record)
        if len(records) == after:
            control.stop()
    assert "verdict" not in {record.type for record in records}
    if after:
        assert (records[-1].type, records[-1].reason) == ("done", "stopped")
    else:
        assert [record.type for record in records] == ["race"]
