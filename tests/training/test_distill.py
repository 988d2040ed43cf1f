"""`mars distill`: whose answers, to which prompts, and what survives an interruption."""

from __future__ import annotations

import errno
import gzip
import json
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cache

import pytest

from mars_core.answers import Answer, answer_batch, encode_all, longest_first
from mars_core.config import DecodeConfig
from mars_core.engine import Engine
from mars_core.errors import MarsError
from mars_core.models.load import load
from mars_core.text import REPLACEMENT
from mars_core.trace import Message
from mars_core.training import checkpoint
from mars_core.training import distill as module
from mars_core.training.distill import Dialogue, DistillConfig, distill, whole_sentences
from mars_core.training.prompt_file import Task, read_tasks
from tests.tiny import tiny_checkpoint, tiny_llama

PROMPTS = [f"Tell me about number {i} and the sea{' again' * (i % 5)}." for i in range(11)]
DECODE = DecodeConfig(max_new_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of random weights, in float64: a batch's companions change no token."""
    model = tiny_llama(seed=5, sharpen=3)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("distill") / "tiny-model", model, mask=True))


@cache
def loaded(folder):
    return load(folder, dtype="float64", device="cpu")


def user(text):
    return Message(role="user", content=text)


def settings(folder, tmp_path, rows=PROMPTS, **changes):
    """A configuration whose prompts are `rows`: strings for plain text, dicts for JSON Lines."""
    if isinstance(rows[0], str):
        prompts = tmp_path / "prompts.txt"
        prompts.write_text("\n".join(rows) + "\n")
    else:
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    defaults = {
        "prompts": prompts,
        "out": tmp_path / "out.jsonl",
        "model": folder,
        "device": "cpu",
        "dtype": "float64",
        "decode": DECODE,
        "batch_size": 4,
        "processes": 1,
    }
    return DistillConfig(**{**defaults, **changes})


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def alone(model, messages, config):
    """The `done` record of one conversation, answered by the engine."""
    return list(Engine(model).generate(messages, replace(config, mode="one")))[-1]


def decoded(model, messages, config):
    records = list(Engine(model).generate(messages, replace(config, mode="one")))
    return [token.id for record in records[2:-1] for token in record.tokens]


def test_a_batch_answers_as_each_alone(folder):
    conversations = [[user(prompt)] for prompt in PROMPTS]
    config = DecodeConfig(max_new_tokens=60, repetition_penalty=1.2)
    model = loaded(folder)
    # an end that really comes, in some rows
    token = decoded(model, conversations[0], config)[20]
    special = replace(model.special, eos_ids=frozenset({token}))
    model = replace(model, special=special)
    single = [alone(model, c, config) for c in conversations]
    answers = answer_batch(model, encode_all(model, conversations), config, rows=4)
    expected = [(d.text.rstrip(REPLACEMENT), d.tokens, d.reason == "eos") for d in single]
    assert [(a.text.rstrip(REPLACEMENT), a.tokens, a.finished) for a in answers] == expected
    assert {a.finished for a in answers} == {True, False}
    assert all(a.tokens == a.forwards for a in answers)


def test_every_prompt_once_the_longest_first():
    prompts = [[0] * n for n in (3, 9, 1, 9, 4)]
    assert longest_first(prompts) == [1, 3, 4, 0, 2]


def test_rows_hold_the_models_own_answers(folder, tmp_path):
    rows = [*PROMPTS, "  tell me ABOUT number 0 and the   sea. "]  # the first again
    state = distill(settings(folder, tmp_path, rows))
    written = lines(tmp_path / "out.jsonl")
    assert len(written) == state.tally.answered == len(PROMPTS)
    for row in written:
        question, answer = row["messages"]
        single = alone(loaded(folder), [user(question["content"])], DECODE)
        assert question["role"] == "user"
        assert answer == {"role": "assistant", "content": single.text.rstrip(REPLACEMENT)}
        assert row["tokens"] == single.tokens
        assert row["finished"] == (single.reason == "eos")
    about = json.loads((tmp_path / "out.about.json").read_text())
    assert about["duplicates"] == 1
    assert about["counts"]["answered"] == len(PROMPTS)
    assert about["model"]["name"] == "tiny-model"
    assert about["settings"]["max_new_tokens"] == 12
    assert str(tmp_path) not in json.dumps(about)
    assert state.line.startswith("answered 11 of 11")


def test_turns_are_answered_one_after_the_other(folder, tmp_path):
    rows = [{"turns": ["Hello there.", "Shorter, please."], "system": "Be kind.", "kind": "two"}]
    five = DecodeConfig(max_new_tokens=5)
    distill(settings(folder, tmp_path, rows, decode=five))
    (row,) = lines(tmp_path / "out.jsonl")
    system, question, first, second, last = [Message(**m) for m in row["messages"]]
    assert (system.role, system.content) == ("system", "Be kind.")
    assert (question.content, second.content) == ("Hello there.", "Shorter, please.")
    opening = [system, question]
    cut = alone(loaded(folder), opening, five).text
    assert first.content == whole_sentences(cut.rstrip(REPLACEMENT))
    done = alone(loaded(folder), [*opening, first, second], five)
    assert last.content == done.text.rstrip(REPLACEMENT)
    assert row["tokens"] == 5 + done.tokens
    assert row["kind"] == "two"


def test_a_conversation_ends_where_it_loops(folder):
    task = Task((), ("first", "second"))
    dialogue = Dialogue(task, [])
    assert dialogue.ask(0, loaded(folder))
    dialogue.take(Answer("so it is and so it goes " * 9, 60, 60, finished=False))
    assert not dialogue.ask(1, loaded(folder))
    assert dialogue.row()["dropped"] == "looping"
    empty = Dialogue(task, [])
    assert empty.ask(0, loaded(folder))
    empty.take(Answer(" \n", 2, 2, finished=True))
    assert empty.row()["dropped"] == "empty"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("It rains. The sun co", "It rains."),
        ("1. Wake up\n2. Get", "1. Wake up"),
        ('She said "No." Then 3.5 me', 'She said "No."'),
        ("no end in sight", "no end in sight"),
        ("", ""),
    ],
)
def test_a_cut_answer_ends_with_a_whole_sentence(text, kept):
    assert whole_sentences(text) == kept


class InterruptionError(Exception):
    """Stands for whatever ends a run."""


def stop_after(batches):
    """A report that ends the run."""
    seen = []

    def report(state):
        seen.append(state)
        if len(seen) == batches:
            raise InterruptionError

    return report


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("half_a_line", [b"", b'{"id": "0123", "mess'])
def test_an_interrupted_run_ends_like_an_unbroken_one(folder, tmp_path, temperature, half_a_line):
    decode = replace(DECODE, temperature=temperature)
    whole = settings(folder, tmp_path, decode=decode, out=tmp_path / "whole.jsonl")
    distill(whole)
    broken = replace(whole, out=tmp_path / "broken.jsonl")
    with pytest.raises(InterruptionError):
        distill(broken, report=stop_after(1))
    so_far = broken.out.read_bytes()
    assert 0 < len(so_far) < len(whole.out.read_bytes())
    with broken.out.open("ab") as file:
        file.write(half_a_line)
    states = []
    distill(broken, report=states.append)
    assert broken.out.read_bytes() == whole.out.read_bytes()
    assert broken.out.read_bytes().startswith(so_far)
    assert len(states) == 2  # of three batches
    distill(broken, report=lambda state: pytest.fail("there was nothing left to do"))


def test_more_prompts_can_be_added_later(folder, tmp_path):
    distill(settings(folder, tmp_path, PROMPTS[:5]))
    first = (tmp_path / "out.jsonl").read_bytes()
    state = distill(settings(folder, tmp_path, PROMPTS))
    assert (tmp_path / "out.jsonl").read_bytes().startswith(first)
    assert state.tally.answered == len(PROMPTS)
    assert len({row["id"] for row in lines(tmp_path / "out.jsonl")}) == state.tally.rows


def test_limit_takes_whole_batches(folder, tmp_path):
    config = settings(folder, tmp_path, limit=5)
    answered = distill(config).tally.answered
    assert 5 <= answered <= 8
    assert distill(config).tally.answered == answered


def test_processes_write_what_one_would(folder, tmp_path):
    one = settings(folder, tmp_path, out=tmp_path / "one.jsonl")
    two = replace(one, out=tmp_path / "two.jsonl", processes=2)
    distill(one)
    distill(two)
    assert two.out.read_bytes() == one.out.read_bytes()


class DyingPool:
    """A ProcessPoolExecutor whose workers have died."""

    def __init__(self, *arguments):
        pass

    def submit(self, function, *arguments):
        future = Future()
        future.set_exception(BrokenProcessPool())
        return future

    def shutdown(self, **options):
        pass


def test_a_process_that_dies_is_said(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ProcessPoolExecutor", DyingPool)
    with pytest.raises(MarsError, match="worker process died"):
        distill(settings(folder, tmp_path, processes=2))


def test_a_run_with_other_settings_is_refused(folder, tmp_path):
    config = settings(folder, tmp_path, PROMPTS[:2])
    distill(config)
    other = replace(DECODE, repetition_penalty=1.1)
    with pytest.raises(MarsError, match=r"repetition_penalty \(1.0, now 1.1\)"):
        distill(replace(config, decode=other))
    with pytest.raises(MarsError, match=r"another system \(None, now Be brief\)"):
        distill(replace(config, system="Be brief."))
    (tmp_path / "out.about.json").unlink()
    with pytest.raises(MarsError, match="does not say how it was made"):
        distill(config)


def test_a_full_disk_is_one_line_and_keeps_what_is_there(folder, tmp_path, monkeypatch):
    config = settings(folder, tmp_path)
    with pytest.raises(InterruptionError):
        distill(config, report=stop_after(1))
    before = config.out.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("mars_core.training.answer_file.os.fsync", full)
        with pytest.raises(MarsError, match=r"out\.jsonl cannot be written: No space left"):
            distill(config)
    assert config.out.read_bytes().startswith(before)
    assert distill(config).tally.answered == len(PROMPTS)


# --- prompt files -------------------------------------------------------------------------------


def test_gzipped_prompts_and_every_form_of_them(tmp_path):
    path = tmp_path / "prompts.jsonl.gz"
    rows = [
        {"prompt": "One?", "kind": "a"},
        {"turns": ["One?", "And two?"]},
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hey"},
                      {"role": "user", "content": "One?"}]},
        {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "One?"}]},
        {"prompt": "one?", "id": "of another file"},
        {"messages": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "2"}]},
        {"prompt": "One?", "system": "S"},
    ]  # fmt: skip
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n\n" for row in rows)
    tasks, duplicates = read_tasks(path)
    assert duplicates == 2
    assert [(len(t.opening), t.turns) for t in tasks] == [
        (0, ("One?",)),
        (0, ("One?", "And two?")),
        (2, ("One?",)),
        (1, ("One?",)),
        (0, ("Two?",)),
    ]
    assert tasks[0].extra == {"kind": "a"}
    with_system, _ = read_tasks(path, system="T")
    assert [t.opening[0].content for t in with_system] == ["T", "T", "T", "S", "T"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.txt", b"", "p.txt has no prompts"),
        ("p.txt", b"\n  \n", "no prompts"),
        ("p.txt", b"\xff\xfe\x00", "not text in UTF-8"),
        ("p.txt.gz", b"plain", "cannot be read"),
        ("p.txt.gz", gzip.compress(b"hello" * 999, mtime=0)[:40], "cannot be read"),
        ("p.jsonl", b"{", "p.jsonl, line 1: this is not JSON"),
        ("p.jsonl", b'\n{"prompt": "a"}\n[]', "line 3: a JSON object"),
        ("p.jsonl", b'{"question": "a"}', "prompt, turns and messages"),
        ("p.jsonl", b'{"prompt": "a", "turns": ["b"]}', "exactly one"),
        ("p.jsonl", b'{"prompt": " "}', "empty"),
        ("p.jsonl", b'{"prompt": 3}', "must be text"),
        ("p.jsonl", b'{"prompt": "\\ud800"}', "surrogate"),
        ("p.jsonl", b'{"turns": []}', "turns must be a list"),
        ("p.jsonl", b'{"messages": [{"role": "assistant", "content": "a"}]}', "user turn"),
        ("p.jsonl", b'{"messages": [{"role": "boss", "content": "a"}]}', "role"),
        ("p.jsonl", b'{"messages": [{"role": "user"}]}', "must be text"),
        (
            "p.jsonl",
            b'{"system": "a", "messages": [{"role": "system", "content": "a"}, '
            b'{"role": "user", "content": "a"}]}',
            "twice",
        ),
    ],
)
def test_bad_prompt_files(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(MarsError) as error:
        read_tasks(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": ["short", "long " * 300]}, "prompts.txt, line 2: the prompt has"),
        ({"out": "answers.json"}, "must end in .jsonl"),
        ({"out": "prompts.txt/out.jsonl"}, "cannot be written"),
        ({"prompts": "missing.txt"}, "missing.txt cannot be read: No such file"),
        ({"batch_size": 0}, "batch size"),
        ({"processes": -1}, "processes"),
        ({"limit": 0}, "limit"),
        ({"decode": DecodeConfig(stop=("a",))}, "stop strings"),
        ({"model": "no such model"}, "unknown model"),
    ],
)
def test_bad_settings_are_one_line(folder, tmp_path, changes, words):
    paths = {k: tmp_path / v for k, v in changes.items() if k in ("out", "prompts")}
    with pytest.raises(MarsError) as error:
        distill(settings(folder, tmp_path, **{**changes, **paths}))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_it_stops_when_its_time_is_up_and_goes_on(folder, tmp_path):
    config = settings(folder, tmp_path)
    state = distill(replace(config, minutes=0.001))
    assert 0 < state.tally.answered <= state.prompts
    first = lines(config.out)
    assert distill(config).tally.answered == state.prompts
    assert lines(config.out)[: len(first)] == first


def test_two_runs_do_not_write_one_file(folder, tmp_path):
    config = settings(folder, tmp_path)
    with checkpoint.alone(tmp_path, ".out.jsonl.lock"), pytest.raises(MarsError, match="another"):
        distill(config)
    assert not config.out.exists()
