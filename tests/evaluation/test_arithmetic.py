"""The arithmetic benchmark with answers that are written down, and with tiny models."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from mars_core.answers import Answer
from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.evaluation.answering import answerer
from mars_core.evaluation.arithmetic import (
    ArithmeticConfig,
    accuracy_difference,
    benchmark_problems,
    measure,
    run,
    score,
    summarise,
    table,
)
from mars_core.evaluation.bootstrap import mean_interval, ratio_interval
from mars_core.models.load import load
from mars_core.trace import Message
from tests.tiny import tiny_checkpoint, tiny_llama


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("arithmetic") / "tiny-model", model, mask=True)
    return load(str(folder), dtype="float64", device="cpu")


def scripted(chosen, right):
    """Answers of which those with an index in `right` are right; in an order of their own."""

    def answer(conversations):
        assert [c[0].content for c in conversations] == [p.question for p in chosen]
        for index in reversed(range(len(conversations))):
            problem = chosen[index]
            text = problem.solution if index in right else "The answer is 0."
            yield index, Answer(text, tokens=30, forwards=10 + 10 * (index % 2), finished=True)

    return answer


def test_the_benchmark_is_large_and_the_same_for_everybody():
    chosen = benchmark_problems("numbers", 512)
    assert len({problem.question for problem in chosen}) == 512
    assert chosen == benchmark_problems("numbers", 600)[:512]
    assert ArithmeticConfig().n >= 500


def test_outcomes_come_in_order_and_are_scored():
    chosen = benchmark_problems("templates", 40)
    done = []
    outcomes = run(scripted(chosen, right=range(30)), chosen, lambda *args: done.append(args))
    assert [o.question for o in outcomes] == [p.question for p in chosen]
    assert [o.right for o in outcomes] == [True] * 30 + [False] * 10
    assert outcomes[-1].said == "0"
    assert done[-1] == (40, 40)
    result = summarise(outcomes, {})
    assert result.score.n == 40
    assert result.score.accuracy.value == 0.75
    assert result.score.accuracy.low < 0.75 < result.score.accuracy.high
    assert result.score.tokens_per_forward.value == pytest.approx(30 * 40 / (10 * 20 + 20 * 20))
    assert sum(found.n for found in result.templates.values()) == 40
    assert set(result.steps) == {problem.steps for problem in chosen}


def test_a_silent_model_is_wrong():
    chosen = benchmark_problems("numbers", 3)

    def answer(conversations):
        for index in range(3):
            yield index, Answer("I do not know.", 4, 4, finished=index > 0)

    found = score(run(answer, chosen))
    assert (found.accuracy.value, found.accuracy.high) == (0, 0)
    assert found.stated == 0
    assert found.finished == pytest.approx(2 / 3)


def test_differences_are_paired():
    chosen = benchmark_problems("numbers", 100)
    first = summarise(run(scripted(chosen, range(50)), chosen), {})
    second = summarise(run(scripted(chosen, range(52)), chosen), {})
    paired = accuracy_difference(first, second)
    assert paired.value == pytest.approx(0.02)
    # much narrower than if the two runs had different problems
    assert paired.high - paired.low < 0.1 < first.score.accuracy.high - first.score.accuracy.low
    other = benchmark_problems("numbers", 100, seed=1)
    with pytest.raises(MarsError, match="not of the same problems"):
        accuracy_difference(first, summarise(run(scripted(other, ()), other), {}))
    with pytest.raises(MarsError, match="not of the same problems"):
        accuracy_difference(first, replace(second, outcomes=second.outcomes[:9]))


def test_intervals_are_repeatable_and_near_the_normal_ones():
    values = [1.0] * 300 + [0.0] * 200
    found = mean_interval(values)
    assert found == mean_interval(values)
    assert found != mean_interval(values, seed=1)
    error = 1.96 * np.sqrt(0.6 * 0.4 / 500)
    assert found.low == pytest.approx(0.6 - error, abs=0.005)
    assert found.high == pytest.approx(0.6 + error, abs=0.005)
    ratio = ratio_interval([10.0, 30.0] * 50, [10.0, 10.0] * 50)
    assert ratio.value == 2
    assert 1.7 < ratio.low < 1.9 < 2.1 < ratio.high < 2.3
    with pytest.raises(ValueError, match="no items"):
        mean_interval([])


@pytest.mark.parametrize("mode", ["one", "tau"])
def test_both_ways_to_answer_give_what_the_decoder_gives(loaded, mode):
    """At tau = 1 the engine and the batch agree token for token."""
    config = DecodeConfig(mode=mode, tau=1.0, max_new_tokens=9)
    conversations = [[Message(role="user", content=text)] for text in ("a", "b b b", "cc", "d")]
    answers = dict(answerer(loaded, config, batch_size=3)(conversations))
    batched = dict(answerer(loaded, replace(config, mode="one"), 3)(conversations))
    assert sorted(answers) == [0, 1, 2, 3]
    strip = {i: a.text.rstrip("\ufffd") for i, a in answers.items()}
    assert strip == {i: a.text.rstrip("\ufffd") for i, a in batched.items()}
    assert all(a.tokens == a.forwards == 9 for a in answers.values())


@pytest.mark.parametrize("mode", ["one", "tau"])
def test_measuring_a_model(loaded, mode):
    decode = DecodeConfig(mode=mode, tau=0.0, max_new_tokens=12)
    config = ArithmeticConfig(kind="templates", n=7, batch_size=4, decode=decode)
    result = measure(loaded, config)
    assert result.score.n == len(result.outcomes) == 7
    assert result.score.accuracy.value == 0
    assert result.score.tokens_per_forward.value == (1 if mode == "one" else 4)
    assert result.about["model"]["name"] == "tiny-model"
    assert asdict(result)["about"]["settings"]["decode"]["max_new_tokens"] == 12
    text = table(result)
    assert "templates unseen in training, n = 7" in text
    assert "tiny-model" in text.splitlines()[0]
    assert all(name in text for name in result.templates)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"n": 0}, "n is 0"), ({"kind": "train"}, "kind"), ({"batch_size": 0}, "batch size")],
)
def test_bad_settings(changes, words):
    with pytest.raises(MarsError, match=words):
        ArithmeticConfig(**changes)
