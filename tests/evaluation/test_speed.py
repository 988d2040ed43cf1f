"""MARS against AR by the clock: what is compared with what, with literal times."""

from __future__ import annotations

import pytest

from mars_core.errors import MarsError
from mars_core.evaluation.settings import SpeedConfig
from mars_core.evaluation.speed import GENERATE, ONE, Said, Timed, lines, measure, rows_of
from mars_core.models.load import load
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.training.runs import PLAIN

MARS = "mars, tau 0.9"
LOOP = "round and round and round it goes, " * 12


def timed(ms, tokens, forwards=None, text="fine"):
    return Timed(Said(text, tokens, forwards), ms)


def test_rows_by_hand():
    found = [
        {GENERATE: timed(400, 10), ONE: timed(300, 10, 10), MARS: timed(150, 10, 5)},
        {GENERATE: timed(100, 10), ONE: timed(500, 10, 10), MARS: timed(350, 15, 10)},
        {GENERATE: timed(1, 9), ONE: timed(1, 9, 9), MARS: timed(1, 90, 9, text=LOOP)},
    ]
    generate, one, mars = rows_of("everyday", found)
    assert (generate.n, generate.ms_per_token, generate.forwards) == (2, 25, None)
    assert (one.ms_per_token, one.forwards) == (40, 1)
    assert generate.speed_up is one.speed_up is None
    assert (mars.ms_per_token, mars.forwards) == (20, 25 / 15)
    assert mars.speed_up.value == pytest.approx(25 / 20)  # over `generate`, the faster AR
    assert mars.speed_up.low <= mars.speed_up.value <= mars.speed_up.high
    assert rows_of("everyday", found[2:]) == []
    assert "1.67" in lines([mars])[1]


def test_all_ways_answer_the_same_prompts(tmp_path):
    model = tiny_llama(seed=5, sharpen=6)
    loaded = load(str(tiny_checkpoint(tmp_path / "tiny", model, mask=True)), **PLAIN)
    config = SpeedConfig(sets=("facts",), taus=(1.0, 0.0), max_new_tokens=12, limit=2)
    done = []
    generate, one, verified, exact, fast = measure(loaded, config, done.append)
    assert done == [1, 2]
    assert [row.way for row in (generate, one, verified, exact, fast)] == [
        GENERATE, ONE, "mars, verified", "mars, tau 1", "mars, tau 0"
    ]  # fmt: skip
    assert verified.forwards >= 1
    assert one.forwards == exact.forwards == 1
    assert fast.forwards > 1


@pytest.mark.parametrize("changes", [{"sets": ("x",)}, {"taus": (2,)}, {"limit": 0}])
def test_bad_settings(changes):
    with pytest.raises(MarsError):
        SpeedConfig(**changes)
