"""Records are the events with text and time, and nothing of a run is lost."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from mars_core import trace
from mars_core.cache import Session
from mars_core.chat import encode_chat
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.control import LiveControl
from mars_core.decode import decode
from mars_core.engine import Engine, forward_of
from mars_core.errors import MarsError
from mars_core.events import Step
from mars_core.models.load import load
from tests.tiny import tiny_checkpoint, tiny_llama

MESSAGES = [trace.Message(role="user", content="Tell me of the sea.")]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("engine") / "tiny", model, mask=True)
    return load(str(folder), device="cpu", dtype="float64")


@pytest.fixture
def engine(loaded):
    return Engine(loaded)


def steps_of(records):
    return [record for record in records if isinstance(record, trace.StepRecord)]


@pytest.mark.parametrize("mode", ["one", "tau", "verified"])
def test_the_record_says_what_the_loop_decided(engine, loaded, mode):
    config = DecodeConfig(mode=mode, tau=0.3, max_new_tokens=40, adaptive=False)
    records = list(engine.generate(MESSAGES, config))
    ids, text = encode_chat(loaded.tokenizer, MESSAGES)
    events = list(decode(Session(loaded.model, 256), ids, config, loaded.special))

    header, prefill, *steps, done = records
    assert header.prompt.text == text
    assert header.prompt.tokens == len(ids) == prefill.tokens + 1
    assert header.settings["tau"] == 0.3
    assert [[t.id for t in s.tokens] for s in steps] == [
        [t.token for t in e.tokens] for e in events if isinstance(e, Step)
    ]
    assert [[s.id for s in step.slots] for step in steps] == [
        [s.token for s in e.slots] for e in events if isinstance(e, Step)
    ]
    assert done.tokens == sum(len(s.tokens) for s in steps)
    assert done.forwards == len(steps)
    committed = [t.id for s in steps for t in s.tokens]
    assert done.text == loaded.tokenizer.decode(committed, skip_special_tokens=True)
    assert done.text == "".join(t.text for s in steps for t in s.tokens) + done.tail
    assert done.decode_ms == pytest.approx(sum(s.ms for s in steps))
    assert all(len(slot.alternatives) == 5 for step in steps for slot in step.slots)
    drafted = [draft for step in steps for draft in step.drafts]
    assert bool(drafted) == (mode == "verified")
    assert [(d.id, d.verdict, (d.origin.forward, d.origin.slot)) for d in drafted] == [
        (d.token, d.verdict, d.origin) for e in events if isinstance(e, Step) for d in e.drafts
    ]
    assert {step.group is None for step in steps} == {mode != "verified"}


def test_the_header_tells_what_rows_cost(engine):
    """As measured once, on the engine's clock; rows and drafts are weighed by it."""
    config = DecodeConfig(mode="verified", max_new_tokens=4)
    first, second = (next(engine.generate(MESSAGES, config)) for _ in "ab")
    assert list(first.costs) == ["1", "2", "4", "9", "16", "25"]
    assert all(ms > 0 for ms in first.costs.values())
    assert second.costs == first.costs


def test_large_models_and_large_seeds_fit_the_header(loaded):
    engine = Engine(replace(loaded, parameters=7_000_000_000))
    config = DecodeConfig(max_new_tokens=2, seed=2**53 - 1)
    records = list(engine.generate(MESSAGES, config))
    assert records[0].model.parameters == 7_000_000_000
    assert trace.parse_record(trace.dump_record(records[0])).seed == 2**53 - 1


def test_bad_input_is_refused_before_anything_is_said(loaded):
    """At the call, not at the first record: nobody has half a trace."""
    engine = Engine(replace(loaded, special=SpecialTokens(None, loaded.special.eos_ids)))
    with pytest.raises(MarsError, match="no mask token"):
        engine.generate(MESSAGES, DecodeConfig())
    with pytest.raises(MarsError, match="no mask token"):
        engine.generate(MESSAGES, DecodeConfig(mode="verified", block_size=1))
    assert list(engine.generate(MESSAGES, DecodeConfig(mode="one", max_new_tokens=2)))
    with pytest.raises(MarsError, match="empty"):
        engine.generate([trace.Message(role="user", content=" ")], DecodeConfig(mode="one"))


def test_the_trace_survives_a_file(engine, tmp_path):
    records = list(engine.generate(MESSAGES, DecodeConfig(tau=0.2, max_new_tokens=30)))
    trace.write_trace(tmp_path / "run.jsonl", records)
    assert trace.read_trace(tmp_path / "run.jsonl") == records


def test_milliseconds_are_the_models_alone(loaded):
    """The consumer takes an hour per record; the trace does not notice."""
    ticks = iter(range(10**9))
    hour = 0.0

    def clock():
        return next(ticks) + hour

    records = []
    for record in Engine(loaded, clock).generate(MESSAGES, DecodeConfig(max_new_tokens=8)):
        records.append(record)
        hour += 3600
    assert {step.ms for step in steps_of(records)} == {1000}  # one tick: start to end of a step


def test_a_conversation_that_goes_on_prefills_only_what_is_new(engine):
    config = DecodeConfig(max_new_tokens=12)
    first = list(engine.generate(MESSAGES, config))
    turns = [
        *MESSAGES,
        trace.Message(role="assistant", content=first[-1].text),
        trace.Message(role="user", content="And the land?"),
    ]
    second = list(engine.generate(turns, config))
    assert second[1].reused >= first[1].tokens
    fresh = list(Engine(engine.loaded).generate(turns, config))
    assert second[-1].text == fresh[-1].text
    assert fresh[1].reused == 0


def test_closing_frees_the_engine_for_the_next(engine):
    run = engine.generate(MESSAGES, DecodeConfig(max_new_tokens=30))
    for _ in range(4):
        next(run)
    run.close()
    done = []
    other = threading.Thread(
        target=lambda: done.extend(engine.generate(MESSAGES, DecodeConfig(max_new_tokens=5)))
    )
    other.start()
    other.join(timeout=60)
    assert done[-1].tokens == 5


def test_runs_take_turns(engine):
    """A second run waits, and neither sees the other's tokens."""
    config = DecodeConfig(max_new_tokens=20)
    alone = {
        text: list(engine.generate([trace.Message(role="user", content=text)], config))[-1].text
        for text in "abcd"
    }
    found = {}

    def ask(text):
        found[text] = list(engine.generate([trace.Message(role="user", content=text)], config))[-1]

    threads = [threading.Thread(target=ask, args=(text,)) for text in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert {text: done.text for text, done in found.items()} == alone


def test_tau_moved_while_running_is_in_the_trace(engine):
    config = DecodeConfig(tau=1.0, max_new_tokens=30)
    control = LiveControl(config)
    records = []
    for record in engine.generate(MESSAGES, config, control):
        records.append(record)
        if isinstance(record, trace.StepRecord) and record.forward == 5:
            control.set(tau=0.0)
    moved = [record for record in records if isinstance(record, trace.ControlRecord)]
    assert [(m.forward, m.tau) for m in moved] == [(6, 0.0)]
    assert all(len(s.tokens) == 1 for s in steps_of(records)[:5])
    assert len(steps_of(records)[5].tokens) == 4


def test_stop_string_ends_the_text_with_it(engine):
    config = DecodeConfig(mode="one", max_new_tokens=40)
    text = list(engine.generate(MESSAGES, config))[-1].text
    word = text[10:13]
    stopped = list(engine.generate(MESSAGES, DecodeConfig(max_new_tokens=40, tau=1, stop=(word,))))
    assert stopped[-1].reason == "stop"
    assert word in stopped[-1].text
    assert text.startswith(stopped[-1].text)


def test_special_tokens_are_named_and_have_no_text(loaded):
    eos = sorted(loaded.special.eos_ids)[0]
    engine = Engine(loaded)
    for content in "abcdefghijklmnop":
        messages = [trace.Message(role="user", content=content)]
        config = DecodeConfig(mode="one", max_new_tokens=200, temperature=1.5, seed=1)
        records = list(engine.generate(messages, config))
        if records[-1].reason == "eos":
            last = steps_of(records)[-1].tokens[-1]
            assert (last.id, last.text, last.special) == (eos, "", "<|im_end|>")
            return
    pytest.fail("no run ended by EOS")


def test_a_prompt_longer_than_the_context_gives_both_numbers(engine):
    messages = [trace.Message(role="user", content="word " * 500)]
    tokens = len(encode_chat(engine.loaded.tokenizer, messages)[0])
    with pytest.raises(MarsError, match=f"{tokens} tokens but the model's context is 256"):
        list(engine.generate(messages, DecodeConfig()))
    assert list(engine.generate(MESSAGES, DecodeConfig(max_new_tokens=3)))[-1].tokens == 3


def test_a_wide_window_at_the_end_of_the_context(engine):
    messages = [trace.Message(role="user", content="x" * 200)]
    config = DecodeConfig(tau=0, block_size=16, max_new_tokens=100)
    done = list(engine.generate(messages, config))[-1]
    assert done.reason == "context"
    assert done.tokens + len(encode_chat(engine.loaded.tokenizer, messages)[0]) == 256


@pytest.mark.parametrize(("context", "cached"), [(512, 128), (100, 97), (2, 0)])
def test_forwards_are_timed_behind_cached_tokens(loaded, monkeypatch, context, cached):
    """As many as there is room for; none of them is computed, and nothing is left behind."""
    session = loaded.session(2)
    session.prefill([[5, 6], [7]])
    seen = []

    def spied(fed, first=0):
        seen.append(([len(tokens) for tokens in session.tokens], len(fed[0].ids)))
        return Session.forward(session, fed, first)

    monkeypatch.setattr(session, "forward", spied)
    short = replace(loaded, context_length=context)
    forward = forward_of(short, 3, 2, session)
    forward()
    forward()
    assert seen[1:] == [([cached, cached], min(3, context))] * 3
    assert session.tokens == []
