"""The look at a model after its training."""

from __future__ import annotations

import pytest

from mars_core.answers import Answer
from mars_core.chat import Turn
from mars_core.evaluation.look import TAUS, Asked, look, prompts, summary, table
from mars_core.models.load import load
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.training.runs import PLAIN, Ticks


def answer(text, tokens, forwards):
    return Answer(text, tokens, forwards, finished=True)


def test_the_summary_by_hand():
    sums = Asked("arithmetic", [Turn("user", "2 + 2?")], "4")
    chat = Asked("everyday", [Turn("user", "Hello?")])
    right, wrong = "The answer is 4.", "The answer is 5."
    stuck = "it goes on and on and it " * 20
    found = [
        (sums, [answer(right, 6, 6), answer(right, 6, 3), answer(wrong, 6, 2)]),
        (chat, [answer("Hi.", 2, 2), answer("Hi.", 2, 2), answer(stuck, 100, 25)]),
        (sums, [answer(right, 8, 8), answer(right, 8, 4), answer(right, 8, 4)]),
    ]
    rows = {(row.kind, row.tau): row for row in summary(found)}
    assert list(rows) == [(k, t) for k in ("arithmetic", "everyday") for t in (None, *TAUS)]
    plain, high, low = (rows["arithmetic", tau] for tau in (None, *TAUS))
    assert [r.n for r in (plain, high, low)] == [2, 2, 2]
    assert [r.tokens_per_forward.value for r in (plain, high, low)] == [1, 2, 14 / 6]
    assert [r.right.value for r in (plain, high, low)] == [1, 1, 0.5]
    assert [r.same for r in (plain, high, low)] == [1, 1, 0.5]
    last = rows["everyday", TAUS[-1]]
    assert (last.n, last.right, last.same, last.looping) == (1, None, 0, 1)


def test_prompts_take_turns_and_have_expectations():
    found = list(prompts())
    assert [asked.kind for asked in found[:4]] == ["arithmetic", "everyday"] * 2
    assert all((asked.expected is None) == (asked.kind == "everyday") for asked in found)
    assert len({asked.messages[-1].content for asked in found}) == len(found) == 160


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return load(
        str(tiny_checkpoint(tmp_path_factory.mktemp("m") / "tiny", model, mask=True)), **PLAIN
    )


def test_it_ends_when_its_time_is_up(loaded):
    result = look(loaded, 4, max_new_tokens=5, clock=Ticks())
    assert sum(row.n for row in result.rows if row.tau is None) == 4
    first, *rest = table(result).splitlines()
    assert "tiny" in first
    assert "float32" in first
    assert len(rest) == 1 + 2 * (1 + len(TAUS))
    least = look(loaded, 0, max_new_tokens=5)
    assert [(row.kind, row.n) for row in least.rows] == [("arithmetic", 1)] * 3
