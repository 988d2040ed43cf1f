"""Masks are fed where they are worth their time, and the text does not depend on it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.control import LiveControl
from mars_core.decode import decode, decode_batch
from mars_core.events import Step
from mars_core.pacing import TRY_AGAIN, Pacer, Wish
from mars_core.row import Request
from tests import scripted

SPECIAL = SpecialTokens(scripted.MASK_ID, frozenset())
DEAR = {1: {1: 10.0, 10: 100.0}, 8: {1: 20.0, 10: 200.0}}
CHEAP = {1: {1: 10.0, 10: 10.9}, 8: {1: 20.0, 10: 22.0}}
PACED = DecodeConfig(tau=0.9, block_size=4, adaptive_masks=True, max_new_tokens=200)


def steps_of(rows, config, costs, places=8, controls=None):
    """Rows whose masks are unsure at every so manieth position, with 1 at all."""
    session = Session(Sure(rows), 300, rows=places)
    requests = [Request([row], config, controls and controls[row]) for row in range(len(rows))]
    events = decode_batch(session, requests, SPECIAL, costs=costs)
    return [event for event in events if isinstance(event, Step)]


class Sure(scripted.ScriptedModel):
    """Its masks are sure but at every so manieth position, as is said for each place."""

    def __init__(self, every):
        super().__init__(lambda place, is_mask: (place % 40 + 20, 50.0))
        self.every = every

    def forward(self, input_ids, position_ids, attention_mask, use_cache, cache):
        said = super().forward(input_ids, position_ids, attention_mask, use_cache, cache)
        lines = said.last_hidden_state
        for row, every in enumerate(self.every[: len(lines)]):
            for i, (token, place) in enumerate(
                zip(input_ids[row].tolist(), position_ids[row].tolist(), strict=True)
            ):
                if token == scripted.MASK_ID and place % every == 0:
                    lines[row, i] /= 25  # 2.0 of 64 logits: unsure
        return said


def fed_per_step(steps, row):
    return [len(step.slots) - 1 for step in steps if step.row == row]


@pytest.mark.parametrize("rows", [[1], [1] * 8])
@pytest.mark.parametrize("dearer", [0.02, 0.1, 0.5])
def test_useless_masks_take_little_time_and_are_tried_again(rows, dearer):
    """Once they are known to be useless: about a hundredth of the time, one of each row."""
    costs = {n: {1: 10.0 * n, 11: 10.0 * n * (1 + 10 * dearer)} for n in (1, 8)}
    fed = fed_per_step(steps_of(rows, replace(PACED, max_new_tokens=250), costs), 0)[40:]
    assert max(fed) == 1
    time = sum(masks * dearer for masks in fed) / len(fed)
    assert 0 < time <= 1.5 * TRY_AGAIN


@pytest.mark.parametrize("rows", [[1000], [1000] * 8])
def test_useful_masks_are_fed_where_rows_are_cheap(rows):
    steps = steps_of(rows, PACED, CHEAP)
    assert set(fed_per_step(steps, 0)[:-2]) == {3}
    dear = steps_of(rows, PACED, DEAR)
    assert sum(fed_per_step(dear, 0)) < len(fed_per_step(dear, 0))


def test_a_row_fills_the_width_that_others_need():
    """Padding costs the same: the forward of a row that is fed more has room for masks."""
    pacer = Pacer(DEAR)
    assert pacer.masks([Wish(0, 0.9, 1, 3)], 3, 2) == {0: 2}
    assert pacer.masks([Wish(0, 0.9, 1, 3), Wish(1, 0.9, 3, 3)], 1, 2) == {0: 2, 1: 0}


def test_what_was_learned_at_one_tau_is_not_believed_at_another():
    config = PACED
    control = LiveControl(config)
    session = Session(Sure([1]), 300)
    fed = []
    costs = {1: {1: 10.0, 10: 19.0}}
    for event in decode_batch(session, [Request([0], config, control)], SPECIAL, costs=costs):
        if isinstance(event, Step):
            fed.append(len(event.slots) - 1)
            if event.forward == 60:
                control.set(tau=0.0)
    assert sum(fed[30:60]) < 10
    assert fed[61:70] == [3] * 9


@given(
    rows=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    costs=st.sampled_from([DEAR, CHEAP]),
    places=st.integers(1, 4),
)
@settings(max_examples=30)
def test_every_forward_is_one_of_fewer_masks(rows, costs, places):
    """Where masks are fed, as many are accepted as would be of all of them; none otherwise."""
    config = DecodeConfig(tau=0.9, block_size=4, adaptive_masks=True, max_new_tokens=30)
    for step in steps_of(rows, config, costs, places):
        sure = 1
        for slot in step.slots[1:]:
            if slot.confidence < 0.9:
                break
            sure += 1
        assert len(step.tokens) == sure
        assert step.fed <= 2 * config.slots


def test_it_is_off_unless_asked_for_and_where_nothing_is_known_of_costs():
    plain = DecodeConfig(tau=0.9, block_size=4, max_new_tokens=20)
    for config, costs in ((plain, CHEAP), (PACED, None)):
        steps = steps_of([1], config, costs)
        assert set(fed_per_step(steps, 0)[:-3]) == {3}


def test_one_sequence_is_paced_too():
    model = Sure([1])
    run = partial(decode, Session(model, 300), [0], PACED, SPECIAL)
    steps = [event for event in run(costs={1: 10.0, 10: 60.0}) if isinstance(event, Step)]
    assert sum(len(step.slots) > 1 for step in steps[40:]) <= 3
