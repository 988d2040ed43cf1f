"""Prompts answered at several taus: what is counted, and that it is what decoding does."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mars_core import cli
from mars_core.cache import Session
from mars_core.chat import encode_chat
from mars_core.cli.evaluate import Count
from mars_core.config import DecodeConfig
from mars_core.decode import decode
from mars_core.errors import MarsError
from mars_core.evaluation.decoding import (
    DecodingResult,
    Given,
    Question,
    mask_guesses,
    measure,
    questions,
    row_of,
    watched,
)
from mars_core.evaluation.decoding_table import markdown, table
from mars_core.evaluation.results import read_result
from mars_core.evaluation.settings import DecodingConfig
from mars_core.events import Committed, Done, Slot, Step
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.training.runs import Ticks


def given(text="fine", tokens=8, forwards=8, guessed=0, agreed=0, right=None, looping=False):
    return Given(text, tokens, forwards, guessed, agreed, ((4, 2), (3, 0)), right, looping)


def test_a_row_by_hand():
    pairs = [
        (given(right=True), given(forwards=4, guessed=4, agreed=3, right=True)),
        (given(right=True), given("other", forwards=2, guessed=6, agreed=6, right=False)),
        (given(right=False), given(right=False)),
        (given(looping=True, right=True), given(forwards=1, guessed=7, agreed=7, right=True)),
        (given(right=False), given(forwards=1, guessed=7, looping=True, right=True)),
    ]
    row = row_of("set", 0.9, pairs)
    assert (row.n, row.looping, row.ar_looping) == (5, 0.2, 0.2)
    assert row.tokens_per_forward.value == 24 / 14
    assert row.agreement.value == 0.9
    assert row.same == 2 / 3
    assert (row.right.value, row.gain.value) == (0.6, 0)
    assert row.masks == ()
    assert row_of("set", 1.0, [(ar, ar) for ar, _ in pairs]).masks == (0.5, 0)
    stuck = row_of("set", 0.9, [(given(), given(looping=True))])
    assert (stuck.tokens_per_forward, stuck.agreement, stuck.same) == (None, None, None)
    assert (stuck.right, stuck.gain) == (None, None)
    assert row_of("set", 0.9, [(given(), given())]).agreement is None  # no mask was believed


def step(position, *guesses):
    slots = tuple(Slot(i, token, 0.5, 0.5, i == 0, ()) for i, token in enumerate(guesses))
    return Step(0, 1, "tau", 1.0, 1, position, slots, (Committed(guesses[0], "ar", 0),), ())


def test_masks_are_compared_with_what_followed():
    """Slot i of the step at position p guesses the token at p + i; past the end it guesses none."""
    text = [5, 6, 7]
    steps = [step(10, 5, 6, 9), step(11, 6, 7, 7), step(12, 7, 6, 6)]
    assert list(mask_guesses(steps, text, 10, slots=3)) == [(2, 2), (1, 0)]
    # behind a draft that was kept, slots are one further on
    kept = replace(steps[0], group=1)
    assert list(mask_guesses([kept], text, 10, slots=3)) == [(1, 0), (0, 0)]


def test_verified_is_a_row_that_loses_nothing(loaded):
    config = DecodingConfig(("facts",), taus=(0.5,), verified=True, drafts=3, limit=3)
    config = replace(config, max_new_tokens=24)
    result = measure(loaded, config)
    *_, verified = result.rows
    assert [row.tau for row in result.rows] == [1.0, 0.5, None]
    assert verified.same in (None, 1.0)
    for answer in result.answers:
        one, _, checked = answer["answers"]
        assert (checked["text"], checked["tokens"]) == (one["text"], one["tokens"])
        assert checked["forwards"] <= one["forwards"]
        assert (checked["tau"], checked["guessed"]) == (None, 0)
    shown = table(result)
    assert "verified: at most 3 drafts, grouped" in shown
    assert "facts        verif." in shown
    _, _, one, half, last, *_ = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in markdown([result]).splitlines()
    ]
    assert [line[1] for line in (one, half, last)] == ["1", "0.5", "verified, 3 drafts"]
    assert one[2:6] == ["3", "1.00 [1.00, 1.00]", "", f"{100 * result.rows[0].right.value:.1f}"]
    assert one[6:8] == ["", ""]  # of AR against itself
    assert last[4] == ""  # AR says every token
    assert last[7] in ("", "100")


def test_a_printed_result_is_read_again(tmp_path):
    row = row_of("facts", 0.9, [(given(right=True), given(guessed=4, agreed=3, right=True))] * 2)
    result = DecodingResult({"settings": {}}, [row], [{"set": "facts"}])
    data = json.dumps(asdict(result)).encode()
    path = tmp_path / "x.json"
    path.write_bytes(data)
    packed = tmp_path / "x.json.gz"
    packed.write_bytes(gzip.compress(data))
    for one in (path, packed):
        assert read_result(one, DecodingResult, "mars evaluate decoding --json") == result
    whole = gzip.compress(data)
    why = r"x\.json\.gz cannot be read: it is no gzip file, or cut"
    for damaged in (whole[:40], whole[:40] + bytes(80) + whole[40:], data):
        packed.write_bytes(damaged)
        with pytest.raises(MarsError, match=why):
            read_result(packed, DecodingResult, "mars evaluate decoding --json")
    path.write_text('{"about": {}, "rows": [{"set": 1}], "answers": []}')
    with pytest.raises(MarsError, match=r"x\.json is not what `mars evaluate decoding --json` pri"):
        read_result(path, DecodingResult, "mars evaluate decoding --json")


@pytest.mark.parametrize("tau", [1.0, 0.5, 0.0])
def test_what_is_watched_is_what_decoding_does(loaded, tau):
    *_, question = questions("everyday", 3)  # one that is not answered in a word
    config = DecodeConfig(tau=tau, max_new_tokens=24, alternatives=0)
    prompt, _ = encode_chat(loaded.tokenizer, question.messages)
    others = list(questions("facts", 2))
    _, found, _ = watched(loaded, [others[0], question, others[1]], config)
    *events, done = decode(Session(loaded.model, 256), prompt, config, loaded.special)
    assert isinstance(done, Done)
    assert (found.tokens, found.forwards) == (done.tokens, done.forwards)
    steps = [event for event in events if isinstance(event, Step)]
    from_masks = sum(len(s.tokens) - 1 for s in steps)
    # what the last forward took is never seen by AR
    assert found.guessed == from_masks - (len(steps[-1].tokens) - 1)
    assert done.tokens > 9
    assert 0 <= found.agreed <= found.guessed
    if tau == 1:
        assert found.guessed == 0
        assert [n for n, _ in found.masks] == [max(0, done.tokens - m) for m in (1, 2, 3)]


def test_sets_take_turns_until_the_time_is_up(loaded):
    config = DecodingConfig(
        sets=("arithmetic", "everyday"),
        taus=(0.5, 0.0),
        max_new_tokens=6,
        minutes=5 / 60,
        batch_size=1,
    )
    result = measure(loaded, config, clock=Ticks())
    assert [answer["set"] for answer in result.answers] == ["arithmetic", "everyday"] * 2 + [
        "arithmetic"
    ]
    assert [(r.set, r.tau, r.n) for r in result.rows] == [
        (name, tau, n) for name, n in (("arithmetic", 3), ("everyday", 2)) for tau in (1, 0.5, 0.0)
    ]
    assert [r.tokens_per_forward.value for r in result.rows][::3] == [1, 1]
    assert result.rows[2].tokens_per_forward.value > 1
    assert result.rows[0].right is not None
    assert result.rows[3].right is None
    shown = table(result)
    assert "tiny" in shown.splitlines()[0]
    assert "4 slots" in shown
    assert "everyday: masks that guess" in shown
    json.dumps(asdict(result))
    least = measure(loaded, replace(config, minutes=0))
    assert len(least.answers) == 1


@pytest.mark.parametrize(
    ("name", "count", "checked"),
    [
        ("everyday", 80, False),
        ("development", 40, False),
        ("facts", 40, True),
        ("mt-bench", 80, False),
        ("humaneval", 164, False),
        ("gsm8k-100", 100, True),
        ("arithmetic", 512, True),
        ("templates", 512, True),
    ],
)
def test_every_set_has_questions(name, count, checked):
    found = list(questions(name, None))
    assert len(found) == len({q.id for q in found}) == count
    assert all((q.check is not None) == checked for q in found)
    assert len(list(questions(name, 3))) == 3


def test_right_answers_are_known(loaded):
    first: Question = next(questions("gsm8k-100", 1))
    assert not first.check("I do not know.")
    fact = next(questions("facts", 1))
    assert not fact.check("Hm.")


def test_the_command(folder, capsys):
    command = "evaluate decoding --limit 1 --taus 0.5 --max-new-tokens 4 --block-size 3"
    model = ["--model", folder, "--device", "cpu"]
    assert cli.main([*command.split(), *model]) == 0
    assert "3 slots" in capsys.readouterr().out
    assert cli.main([*command.split(), "--json", *model]) == 0
    assert len(json.loads(capsys.readouterr().out)["answers"]) == 2
    assert cli.main([*command.split(), "--limit", "0", *model]) == 2
    assert "limit" in capsys.readouterr().err


def test_without_a_terminal_the_count_is_told_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr("mars_core.cli.evaluate.SECONDS_BETWEEN_LINES", 3)
    monkeypatch.setattr("mars_core.cli.evaluate.time.monotonic", Ticks())
    count = Count()
    for done in range(1, 9):
        count(done)
    assert capsys.readouterr().err == "4 prompts\n8 prompts\n"


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"sets": ()}, "no prompts"), ({"sets": ("x",)}, "prompt set"), ({"taus": (2,)}, "tau")],
)
def test_bad_settings(changes, words):
    with pytest.raises(MarsError, match=words):
        DecodingConfig(**changes)


def test_processes_share_the_prompts(tmp_path, capfd):
    """Under `accelerate launch` (see `test_resume` for its flags): one result, of all prompts."""
    model = tiny_llama(seed=5, sharpen=6)
    folder = tiny_checkpoint(tmp_path / "tiny", model, mask=True)
    asked = ["evaluate", "decoding", "--model", str(folder), "--sets", "facts", "--limit", "5"]
    asked += ["--max-new-tokens", "6", "--batch-size", "2"]
    asked += ["--device", "cpu", "--dtype", "float64", "--json"]
    assert cli.main(asked) == 0
    alone = json.loads(capfd.readouterr().out)
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--main_process_port", "0", "-m", "mars_core.cli"]
    root = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, *launch, *asked],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    together = json.loads(done.stdout)
    assert together["answers"] == alone["answers"]
    assert together["rows"] == alone["rows"]
    assert len(alone["answers"]) == 5
