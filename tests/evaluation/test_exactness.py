"""Decoding against `generate`: equal, at a near-tie, and where it really differs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mars_core import cli
from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.evaluation import exactness
from mars_core.evaluation.decoding import questions
from mars_core.evaluation.exactness import ExactnessConfig, compared_with_generate, measure, table
from tests.training.runs import Ticks

VERIFIED = DecodeConfig(mode="verified", drafts=3, max_new_tokens=20)


def test_verified_differs_nowhere(loaded):
    done = []
    config = ExactnessConfig(("facts", "development"), VERIFIED, limit=2)
    result = measure(loaded, config, done.append)
    assert done == [1, 2, 3, 4]
    assert (result.prompts, result.differences) == (4, [])
    assert 0 < result.forwards <= result.tokens <= 80
    assert "4 prompts" in table(result)
    assert "0 differ, 0 more at a near-tie" in table(result)


def test_what_differs_is_listed_and_the_rest_is_compared(loaded):
    """Masks taken unseen are not AR: each parting is told, and what follows is the reference's."""
    (question,) = questions("facts", 1)
    fast = DecodeConfig(tau=0.0, max_new_tokens=20)
    (found,) = compared_with_generate(loaded, [question], fast)
    places = [difference.token for difference in found.differences]
    assert places == sorted(set(places))
    assert all(0 <= place < found.tokens for place in places)
    assert len(places) > 1
    assert not any(difference.near_tie for difference in found.differences)


@pytest.mark.parametrize("config", [VERIFIED, DecodeConfig(tau=0.0, max_new_tokens=20)])
def test_many_at_once_are_compared_like_each_alone(loaded, config):
    some = list(questions("facts", 5))
    together = compared_with_generate(loaded, some, config)
    alone = [compared_with_generate(loaded, [question], config)[0] for question in some]
    assert [(x.tokens, x.forwards) for x in together] == [(x.tokens, x.forwards) for x in alone]
    parted = [[(d.token, d.theirs, d.ours) for d in x.differences] for x in together]
    assert parted == [[(d.token, d.theirs, d.ours) for d in x.differences] for x in alone]


def test_a_near_tie_is_told_apart(loaded, monkeypatch):
    monkeypatch.setattr(exactness, "_gap", lambda *_: 5e-5)
    config = ExactnessConfig(("facts",), DecodeConfig(tau=0.0, max_new_tokens=20), limit=1)
    result = measure(loaded, config)
    assert all(difference.near_tie for difference in result.differences)
    assert f"0 differ, {len(result.differences)} more at a near-tie" in table(result)
    assert "gap 5.0e-05" in table(result)


def test_time_ends_it(loaded):
    config = ExactnessConfig(("facts",), VERIFIED, minutes=2 / 60)
    assert measure(loaded, config, clock=Ticks()).prompts < 5


def test_the_command(folder, capsys):
    command = "evaluate exactness --sets facts --limit 1 --max-new-tokens 8 --json"
    assert cli.main([*command.split(), "--model", folder, "--device", "cpu"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["prompts"] == 1
    assert result["about"]["settings"]["decode"]["mode"] == "verified"


def test_bad_settings():
    with pytest.raises(MarsError, match="temperature"):
        ExactnessConfig(("facts",), replace(VERIFIED, temperature=1))
    with pytest.raises(MarsError, match="prompt set"):
        ExactnessConfig(("x",), VERIFIED)
    with pytest.raises(MarsError, match="limit"):
        ExactnessConfig(("facts",), VERIFIED, limit=0)
