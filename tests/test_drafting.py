"""What drafts and masks are worth, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_core.config import DecodeConfig
from mars_core.drafting import Planner, Proposal, cost_of, dearest_row, slope_of

COSTS = {1: 10.0, 4: 13.0, 9: 14.0}


def proposals(*confidences):
    return [Proposal(5, (1, i + 1), sure, sure) for i, sure in enumerate(confidences)]


@pytest.mark.parametrize(("rows", "ms"), [(1, 10), (2, 11), (4, 13), (5, 13.2), (9, 14), (11, 15)])
def test_costs_lie_on_lines_between_what_was_measured(rows, ms):
    assert cost_of(COSTS, rows) == pytest.approx(ms)


def test_a_row_never_costs_less_than_nothing():
    assert slope_of(COSTS) == 0.5
    assert slope_of({1: 10.0, 9: 8.0}) == 0
    assert slope_of({4: 10.0}) == 0


def test_a_row_is_as_dear_as_where_rows_are_dearest():
    int8 = {1: 24.0, 4: 30.0, 9: 48.0, 16: 54.0, 25: 60.0}
    assert dearest_row(int8) == 3 > slope_of(int8)
    assert dearest_row({1: 10.0, 9: 8.0}) == dearest_row({4: 10.0}) == 0


def test_the_step_from_one_row_to_two_is_no_price_of_every_row():
    table = {1: 25.0, 4: 26.0, 9: 33.0, 25: 48.0}
    assert dearest_row({**table, 2: 29.0}) == dearest_row(table) == 1
    assert dearest_row({1: 25.0, 2: 29.0}) == 4


def test_where_the_first_rows_are_dear_few_masks_are_fed():
    config = DecodeConfig(mode="verified", drafts=4)
    dear = Planner(config, {1: 24.0, 9: 48.0, 25: 60.0})
    even = Planner(config, {1: 24.0, 9: 36.0, 25: 60.0})
    assert dear.plan((), 1, 100) < even.plan((), 1, 100)


@pytest.mark.parametrize(
    ("layout", "count", "room", "groups"),
    [
        ("grouped", 0, 100, (2,)),
        ("grouped", 2, 100, (2, 2, 2)),
        ("grouped", 9, 100, (2, 2, 2)),
        ("linear", 2, 100, (0, 0, 2)),
        ("grouped", 2, 4, (2, 1, 0)),
        ("grouped", 2, 2, (0, 0)),
        ("grouped", 2, 1, (0,)),
    ],
)
def test_without_costs_everything_is_fed_that_fits(layout, count, room, groups):
    planner = Planner(DecodeConfig(mode="verified", drafts=2, layout=layout))
    assert planner.plan(proposals(*[0.5] * count), pending=1, room=room) == groups


def test_not_asked_to_weigh_it_does_not():
    config = DecodeConfig(mode="verified", drafts=2, adaptive=False)
    planner = Planner(config, {1: 1.0, 2: 1000.0})
    assert planner.plan(proposals(0.0, 0.0), 1, 100) == (2, 2, 2)


def test_sure_drafts_are_fed_and_unsure_ones_are_not():
    planner = Planner(DecodeConfig(mode="verified", drafts=2), {1: 10.0, 11: 14.0})
    for _ in range(20):
        planner.learn(proposals(0.9, 0.8), kept=2, tokens=3, rows=6)
    assert len(planner.plan(proposals(0.95, 0.9), 1, 100)) == 3
    assert len(planner.plan(proposals(0.95, 0.01), 1, 100)) == 2
    assert len(planner.plan(proposals(0.01, 0.9), 1, 100)) == 1


def test_confidence_is_believed_as_far_as_it_was_right():
    planner = Planner(DecodeConfig(mode="verified", drafts=1), {1: 10.0, 11: 30.0})
    for _ in range(40):
        planner.learn(proposals(0.9), kept=0, tokens=1, rows=3)
    assert planner.plan(proposals(0.9), 1, 100) == (0,)


@given(
    sure=st.lists(st.floats(0, 1), max_size=9),
    drafts=st.integers(1, 8),
    room=st.integers(1, 30),
    layout=st.sampled_from(["grouped", "linear"]),
    costs=st.none() | st.dictionaries(st.integers(1, 40), st.floats(0.1, 1e4), min_size=1),
    history=st.lists(st.integers(0, 8), max_size=9),
)
def test_no_plan_asks_for_what_there_is_not(sure, drafts, room, layout, costs, history):
    planner = Planner(DecodeConfig(mode="verified", drafts=drafts, layout=layout), costs)
    at_hand = proposals(*sure)
    for kept in history:
        fed = at_hand[:drafts]
        planner.learn(fed, min(kept, len(fed)), min(kept, len(fed)) + 1, 1 + len(fed))
    groups = planner.plan(at_hand, 1, room)
    fed = len(groups) - 1
    assert fed <= min(len(at_hand), drafts, room - 1)
    for group, masks in enumerate(groups):
        assert 0 <= masks <= drafts
        # what is committed with AR's own, and the drafts with AR's own behind them, fit
        assert masks == 0 or group + 1 + masks + 1 <= room
    if layout == "linear":
        assert not any(groups[:-1])
