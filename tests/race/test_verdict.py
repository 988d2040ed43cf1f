"""What a race came to, by hand."""

from __future__ import annotations

import pytest

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.race.records import collect
from mars_core.race.table import table
from mars_core.race.verdict import parting, verdict_of
from tests.race.scripted import ONE_BY_ONE, OTHER, SEVERAL, entrant, raced
from tests.ui.scripted import EOS


def verdict(*entrants, **options):
    return raced(*entrants, **options)[-1]


def test_figures():
    """6 tokens in 6 forwards of 10 ms against 6 in 3 of 12."""
    ar, mars = verdict(entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL, ms=12.0)).lanes
    assert (ar.tokens, ar.forwards, mars.tokens, mars.forwards) == (6, 6, 6, 3)
    assert (ar.seconds, mars.seconds) == pytest.approx((0.06, 0.036))
    assert (ar.tokens_per_second, mars.tokens_per_second) == pytest.approx((100, 500 / 3))
    assert (mars.tokens_per_forward, mars.ms_per_forward) == pytest.approx((2, 12))
    assert mars.speed_up.median == pytest.approx(5 / 3)
    assert ar.speed_up.median == 1
    assert (ar.parts, mars.parts) == (None, None)
    assert mars.prefill_ms == 12.5
    assert ar.says == ""
    assert mars.says == (
        "MARS is 1.67 times as fast: 2.00 tokens per forward, each forward 1.20 times as long as "
        "one of AR. The text is the same, token for token."
    )


def test_halves_are_rounded_as_on_the_page():
    """25 tokens in 8 forwards: 3.125, which the page's table shows as 3.13."""
    passes = [["a"] * 3] * 7 + [["a"] * 3 + [EOS]]
    *_, mars = verdict(entrant("AR", [["a"]] * 24 + [[EOS]]), entrant("MARS", passes)).lanes
    assert mars.tokens_per_forward == 3.125
    assert " 3.13 tokens per forward" in mars.says


def test_slower_says_why():
    *_, mars = verdict(entrant("AR", ONE_BY_ONE), entrant("MARS", ONE_BY_ONE, ms=12.5)).lanes
    assert mars.says == (
        "MARS is slower, 0.80 times as fast: 1.00 tokens per forward, each forward 1.25 times as "
        "long as one of AR. It would need more than 1.25 tokens per forward to win. The text is "
        "the same, token for token."
    )


def test_as_fast():
    *_, mars = verdict(entrant("AR", ONE_BY_ONE), entrant("MARS", ONE_BY_ONE, ms=10.1)).lanes
    assert mars.says.startswith("MARS is as fast as AR: ")


def test_the_spread_is_over_repeats_in_turn():
    """Repeat by repeat, so that a slow moment that hits both changes nothing."""
    found = verdict(
        entrant("AR", ONE_BY_ONE, ms=[10.0, 20.0, 10.0]),
        entrant("MARS", SEVERAL, ms=[10.0, 20.0, 16.0]),
        repeats=3,
    )
    mars = found.lanes[1]
    assert found.repeats == 3
    assert (mars.speed_up.median, mars.speed_up.low, mars.speed_up.high) == (2, 1.25, 2)
    assert mars.seconds == pytest.approx(0.048)


def test_agreement_counts_tokens_from_masks_that_were_seen():
    """Of three such tokens one differs; those of the last pass nobody saw."""
    disagree = frozenset({(1, 2)})
    *_, mars = verdict(entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL, disagree=disagree)).lanes
    assert (mars.seen, mars.agreement) == (3, pytest.approx(2 / 3))


def test_where_texts_part():
    *_, mars = verdict(entrant("AR", ONE_BY_ONE), entrant("MARS", OTHER)).lanes
    parts = mars.parts
    assert (parts.token, parts.before) == (2, "Once upon")
    assert parts.theirs == f" a time.{EOS}"
    assert parts.ours == f" no time.{EOS}"
    assert mars.says.endswith("The texts part after 2 tokens.")


def test_a_text_that_is_cut_parts_where_it_ends():
    *_, mars = verdict(entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL[:1])).lanes
    assert (mars.parts.token, mars.parts.ours) == (3, "")
    assert mars.parts.theirs == f" time.{EOS}"


def test_long_texts_are_shortened():
    long = [[f" {i}"] for i in range(100)]
    left = collect(raced(entrant("a", [*long, [" x"] * 50]), entrant("b", [*long, [" y"] * 50])))
    parts = parting(*(lane.records for lane in left.lanes))
    assert parts.token == 100
    assert max(map(len, (parts.before, parts.theirs, parts.ours))) <= 40
    assert parts.before.endswith(" 99")


def test_no_verdict_without_two_lanes_that_ended():
    race = collect(raced(entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL)))
    race.lanes[1].records.pop()
    assert verdict_of(race) is None
    race.lanes[1].records.clear()
    assert verdict_of(race) is None


def test_a_stopped_race_judges_what_ended():
    """The third lane is stopped: the first two have their verdict all the same."""
    control = LiveControl(DecodeConfig())
    stopping = entrant("late", ONE_BY_ONE)
    run = stopping.run

    def stop_then_run(control):
        for record in run(control):
            if record.type == "step":
                control.stop()
            yield record

    object.__setattr__(stopping, "run", stop_then_run)
    records = raced(
        entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL), stopping, repeats=3, control=control
    )
    assert [result.lane for result in records[-1].lanes] == [0, 1]
    assert not [record for record in records if record.type == "timing"]
    assert records[-2].reason == "stopped"


def test_table():
    records = raced(
        entrant("AR", ONE_BY_ONE, ms=[10.0, 10.0]),
        entrant("MARS", OTHER, ms=[10.0, 12.0]),
        repeats=2,
    )
    lines = table(records[0], records[-1]).splitlines()
    assert lines[0] == "medians of 2 repeats in turn, decoding alone, without prefill"
    assert lines[2].split() == ["AR", "0.06", "100.0", "6", "1.00", "10.0"]
    assert lines[3].split() == [
        *("MARS", "0.03", "181.8", "3", "2.00", "11.0", "100.0", "%"),
        *("1.83", "x", "[1.67,", "2.00]"),
    ]
    assert lines[-2:] == [
        "  AR    …Once upon| a time.<|im_end|>",
        "  MARS  …Once upon| no time.<|im_end|>",
    ]


def test_a_table_cannot_steer_a_terminal():
    records = raced(entrant("AR", [["a"], ["\x1b[2J"]]), entrant("MARS", [["a"], ["b\nc"]]))
    text = table(records[0], records[-1])
    assert "\x1b" not in text
    assert "…a|b c" in text
