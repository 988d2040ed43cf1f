"""The prompts that evaluations are made of."""

from __future__ import annotations

import pytest

from mars_core.errors import MarsError
from mars_core.evaluation.prompts import EvalPrompt, load_prompts

SIZES = {"gsm8k-100": 100, "humaneval": 164, "mt-bench": 80, "everyday": 80, "facts": 40}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_every_set_is_whole(name, size):
    prompts = load_prompts(name)
    assert len(prompts) == len({prompt.id for prompt in prompts}) == size
    for prompt in prompts:
        assert all(turn.strip() for turn in prompt.turns)
        assert prompt.first[-1].role == "user"
        assert prompt.first[-1].content == prompt.turns[0]


def test_what_the_sets_hold():
    gsm8k = load_prompts("gsm8k-100")
    assert all(len(prompt.expected) == 1 and prompt.expected[0] for prompt in gsm8k)
    mt_bench = load_prompts("mt-bench")
    assert all(len(prompt.turns) == 2 for prompt in mt_bench)
    assert len({prompt.category for prompt in mt_bench}) == 8
    first = load_prompts("humaneval")[0]
    assert first.id == "HumanEval/0"
    assert "def has_close_elements" in first.turns[0]
    assert first.turns[0].endswith("```")
    everyday = load_prompts("everyday")
    assert any(prompt.system for prompt in everyday)
    assert any(len(prompt.turns) == 2 for prompt in everyday)
    assert [m.role for m in everyday[-1].first] == ["system", "user"]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("It has four legs.", True),
        ("A horse has 4 legs.", True),
        ("Four.", True),
        ("Fourteen or 42.", False),
        ("", False),
    ],
)
def test_expected_answers_are_looked_for_as_words(text, right):
    assert EvalPrompt("x", ("How many?",), expected=("four", "4")).is_right(text) == right


def test_an_unknown_set_is_refused():
    with pytest.raises(MarsError, match="prompt set is 'gsm8k'"):
        load_prompts("gsm8k")
