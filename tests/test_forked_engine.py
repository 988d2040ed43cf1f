"""Runs in forked workers, as on ZeroGPU: the same records, steered and stopped from outside."""

from __future__ import annotations

import mmap
import struct
import time

import pytest
import torch

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.engine import Engine
from mars_core.errors import MarsError
from mars_core.forked_engine import MOST_SECONDS, ForkedEngine, seconds, zero_gpu
from mars_core.models.load import load
from mars_core.race.lanes import Racer
from mars_core.race.settings import BatchRaceConfig, RaceConfig
from mars_core.trace import ControlRecord, DoneRecord, Header, StepRecord
from mars_core.ui.conversation import conversation
from tests.forking import Lender
from tests.tiny import tiny_checkpoint, tiny_llama

SAID = conversation("Why is the sky blue?")
LONG = DecodeConfig(tau=1.0, max_new_tokens=100, alternatives=0)
NUMBER = struct.Struct("=Q")
STEP_SECONDS = 0.02


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    model = tiny_llama(sharpen=3.0, dtype=torch.float32)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"), model, mask=True)
    return load(str(folder), device="cpu", dtype="float32")


def forked(engine):
    return ForkedEngine(engine, Racer(engine, None), Lender())


def told(records):
    """What does not depend on time."""
    timed = {"ms", "prefill_ms", "decode_ms", "created", "costs", "device"}
    return [record.model_dump(exclude=timed) for record in records]


@pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(tau=0.3, max_new_tokens=20),
        DecodeConfig(mode="one", max_new_tokens=20),
        DecodeConfig(temperature=0.8, seed=3, max_new_tokens=20),
    ],
)
def test_the_records_are_those_of_this_process(loaded, config):
    there = list(forked(Engine(loaded)).generate(SAID, config, LiveControl(config)))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the worker: more of them would round differently
    try:
        here = list(Engine(loaded).generate(SAID, config))
    finally:
        torch.set_num_threads(threads)
    assert told(there) == told(here)


def test_races_too(loaded):
    decode = DecodeConfig(max_new_tokens=6)
    engine = forked(Engine(loaded))
    race = list(engine.race(SAID, RaceConfig(decode, repeats=1), LiveControl(decode)))
    assert race[-1].type == "verdict"
    config = BatchRaceConfig(decode, lanes=("ar", "cursor"))
    batches = list(engine.batches([SAID] * 2, config, LiveControl(decode)))
    assert batches[-1].type == "verdict"


class Counting:
    """An engine whose runs take a while, and whose worker says in which step it is."""

    def __init__(self, engine):
        self.engine, self.loaded = engine, engine.loaded
        self.memory = mmap.mmap(-1, NUMBER.size)

    @property
    def steps(self):
        return NUMBER.unpack_from(self.memory)[0]

    def encode(self, messages, config):
        return self.engine.encode(messages, config)

    def generate(self, messages, config, control):
        for record in self.engine.generate(messages, config, control):
            if isinstance(record, StepRecord):
                NUMBER.pack_into(self.memory, 0, self.steps + 1)
                time.sleep(STEP_SECONDS)
            yield record


def until_step(records, forward):
    """The records up to that step."""
    seen = []
    for record in records:
        seen.append(record)
        if isinstance(record, StepRecord) and record.forward == forward:
            return seen
    raise AssertionError(f"no step {forward}")


def test_tau_moved_outside_is_found_in_the_trace(loaded):
    engine = forked(Counting(Engine(loaded)))
    control = LiveControl(LONG)
    records = engine.generate(SAID, LONG, control)
    seen = until_step(records, 5)
    control.set(tau=0.123)
    seen += records
    moves = [record for record in seen if isinstance(record, ControlRecord)]
    assert [move.tau for move in moves] == [0.123]
    taus = [record.tau for record in seen if isinstance(record, StepRecord)]
    first = taus.index(0.123)
    assert 5 <= first < len(taus)
    assert set(taus[:first]) == {1.0}
    assert set(taus[first:]) == {0.123}


def test_stop_is_effective_within_two_steps(loaded):
    counting = Counting(Engine(loaded))
    control = LiveControl(LONG)
    records = forked(counting).generate(SAID, LONG, control)
    until_step(records, 5)
    control.stop()
    at_stop = counting.steps
    *_, done = records
    assert isinstance(done, DoneRecord)
    assert done.reason == "stopped"
    assert counting.steps <= at_stop + 2 < LONG.max_new_tokens


def test_a_reader_that_goes_away_ends_the_run(loaded):
    counting = Counting(Engine(loaded))
    engine = forked(counting)
    records = engine.generate(SAID, LONG, LiveControl(LONG))
    until_step(records, 3)
    at_close = counting.steps
    records.close()
    assert counting.steps <= at_close + 2
    again = list(engine.generate(SAID, LONG, LiveControl(LONG)))
    assert again[-1].reason == "length"


def test_bad_input_keeps_its_words(loaded):
    engine = forked(Engine(loaded))
    said = conversation("word " * 3000)
    with pytest.raises(MarsError, match="the prompt has"):
        next(iter(engine.generate(said, LONG, LiveControl(LONG))))
    config = RaceConfig(LONG, ("ar", "original"), repeats=1)
    with pytest.raises(MarsError, match="no adapter"):
        next(iter(engine.race(SAID, config, LiveControl(LONG))))


def test_what_is_asked_for_grows_with_the_work(loaded):
    engine, lender = Engine(loaded), Lender()
    there = ForkedEngine(engine, Racer(engine, None), lender)
    list(there.generate(SAID, DecodeConfig(max_new_tokens=4), LiveControl(LONG)))
    assert lender.asked == [seconds("generate", SAID, DecodeConfig(max_new_tokens=4), 0)]
    short, long = (seconds("generate", SAID, DecodeConfig(max_new_tokens=n), 0) for n in (8, 256))
    assert short < long <= MOST_SECONDS
    race = seconds("race", SAID, RaceConfig(DecodeConfig(max_new_tokens=256)), 0)
    assert long < race <= MOST_SECONDS
    batch = BatchRaceConfig(DecodeConfig(max_new_tokens=32), lanes=("ar", "cursor"))
    assert seconds("batches", [SAID], batch, 0) < seconds("batches", [SAID] * 8, batch, 0)


def test_a_header_is_sent_whole(loaded):
    first = next(iter(forked(Engine(loaded)).generate(SAID, LONG, LiveControl(LONG))))
    assert isinstance(first, Header)
    assert first.prompt.messages[-1].content == "Why is the sky blue?"


def test_outside_of_zero_gpu_nothing_is_lent(monkeypatch):
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    assert zero_gpu() is None


def test_a_folder_named_spaces_is_not_the_package(monkeypatch, tmp_path):
    (tmp_path / "spaces").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "spaces", raising=False)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    with pytest.raises(MarsError, match="package `spaces`"):
        zero_gpu()
