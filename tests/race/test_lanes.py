"""Lanes of a real (tiny) model: what decodes there is what it is called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars_core.baselines import watched_generate
from mars_core.config import DecodeConfig, LoadConfig
from mars_core.control import LiveControl
from mars_core.engine import Engine
from mars_core.errors import MarsError
from mars_core.models.load import load
from mars_core.race.lanes import Racer, open_racer
from mars_core.race.records import collect
from mars_core.race.settings import RaceConfig
from mars_core.race.verdict import verdict_of
from mars_core.stopwatch import Stopwatch
from mars_core.trace import Message
from tests.tiny import save_adapter, tiny_checkpoint, tiny_llama

SAID = [Message(role="user", content="Tell me of the sea, the sea, the sea.")]
DECODE = DecodeConfig(tau=0.3, max_new_tokens=24)


@pytest.fixture(scope="module")
def racer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    model = tiny_llama(seed=5, sharpen=6)
    base = str(tiny_checkpoint(folder / "tiny", model, mask=True))
    adapter = str(save_adapter(folder / "adapter", model))
    plain = {"device": "cpu", "dtype": "float64"}
    return Racer(
        Engine(load(base, adapter=adapter, **plain)),
        lambda: Engine(load(base, adapter=None, **plain)),
    )


def run(racer, config):
    return collect(racer.race(SAID, config, LiveControl(config.decode)))


def ids(lane):
    return [t.id for r in lane.records if r.type == "step" for t in r.tokens]


def test_every_lane(racer):
    names = ("ar", "mars", "verified", "second", "original", "generate", "lookup")
    race = run(racer, RaceConfig(DECODE, names, second_tau=0.9, repeats=2))
    ar, mars, verified, second, original, generate, lookup = race.lanes
    assert len({lane.info.name for lane in race.lanes}) == 7
    assert ids(ar) == ids(verified) == ids(generate) == ids(lookup)
    assert ids(ar) != ids(original)
    assert all(len(lane.timings) == 1 for lane in race.lanes)
    headers = [lane.records[0] for lane in race.lanes]
    assert [h.settings["mode"] for h in headers] == [
        "one", "tau", "verified", "tau", "one", "one", "one"
    ]  # fmt: skip
    assert (headers[1].settings["tau"], headers[3].settings["tau"]) == (0.3, 0.9)
    assert [h.model.adapter for h in headers] == ["adapter"] * 4 + [None] + ["adapter"] * 2
    assert mars.done.forwards < ar.done.forwards == 24
    assert second.done.forwards >= mars.done.forwards
    # nothing is taken from an earlier lane's cache
    prefills = [lane.records[1] for lane in race.lanes]
    assert len({(p.tokens, p.reused) for p in prefills}) == 1
    assert prefills[0].reused == 0
    fed = [[r.fed for r in lane.records if r.type == "step"] for lane in (generate, lookup)]
    assert set(fed[0]) == {1}
    assert fed[1][0] > prefills[0].tokens
    verdict = verdict_of(race)
    assert [result.parts is None for result in verdict.lanes] == [
        True, ids(mars) == ids(ar), True, ids(second) == ids(ar), False, True, True
    ]  # fmt: skip


def test_every_lane_has_its_own_mode(racer):
    race = run(racer, RaceConfig(replace(DECODE, mode="one"), repeats=1))
    headers = [lane.records[0] for lane in race.lanes]
    assert [h.settings["mode"] for h in headers] == ["one", "tau", "verified"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (lambda: RaceConfig(lanes=("mars", "ar")), "first lane"),
        (lambda: RaceConfig(lanes=("ar",)), "two lanes"),
        (lambda: RaceConfig(lanes=("ar", "mars", "mars")), "twice"),
        (lambda: RaceConfig(lanes=("ar", "mrs")), "lane"),
        (lambda: RaceConfig(repeats=0), "repeats"),
        (lambda: RaceConfig(second_tau=2), "second tau"),
        (lambda: RaceConfig(DecodeConfig(temperature=1), ("ar", "generate")), "temperature"),
    ],
)
def test_races_that_cannot_be(config, words):
    with pytest.raises(MarsError, match=words):
        config()


def test_without_an_adapter_there_is_no_other_original(racer):
    loaded = replace(racer._engine.loaded, adapter=None)
    _, alone = open_racer(LoadConfig("a folder"), lambda config: loaded)
    with pytest.raises(MarsError, match="no adapter"):
        alone.race(SAID, RaceConfig(lanes=("ar", "original")), LiveControl(DecodeConfig()))


def test_the_original_is_the_same_without_its_adapter(racer):
    wanted = []

    def load(config):
        wanted.append(config.adapter)
        return replace(racer._engine.loaded, adapter=config.adapter)

    _, own = open_racer(LoadConfig("a folder", adapter="lora"), load)
    config = RaceConfig(DecodeConfig(max_new_tokens=2), ("ar", "original"), repeats=1)
    list(own.race(SAID, config, LiveControl(config.decode)))
    list(own.race(SAID, config, LiveControl(config.decode)))
    assert wanted == ["lora", None]


class Ticks:
    """A clock that is a second later at every reading."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


@pytest.mark.parametrize("lookup", [None, 4])
def test_generate_is_watched(racer, lookup):
    """Its tokens, forwards and times; with a clock of our own every forward takes a second."""
    loaded = racer._engine.loaded
    prompt, _ = racer._engine.encode(SAID, DECODE)
    (prefill, prefill_ms), *steps, (done, _) = watched_generate(
        loaded, prompt, DECODE, Stopwatch(Ticks()), lookup=lookup
    )
    assert prefill.tokens == len(prompt) - 1
    assert prefill_ms == 1000
    expected = [0.0 if lookup and i == 0 else 1000.0 for i in range(len(steps))]
    assert [ms for _, ms in steps] == expected
    tokens = [t.token for step, _ in steps for t in step.tokens]
    assert (done.tokens, done.forwards) == (len(tokens), len(steps))
    assert done.reason == "length"
    assert [step.forward for step, _ in steps] == list(range(1, len(steps) + 1))
    assert steps[1][0].position == len(prompt) + len(steps[0][0].tokens)


def test_generate_ends_as_ours_does(racer):
    """At a stop string, at EOS, and when it is asked to."""
    loaded, engine = racer._engine.loaded, racer._engine
    prompt, _ = engine.encode(SAID, DECODE)
    plain = [
        t.token
        for e, _ in watched_generate(loaded, prompt, DECODE, Stopwatch())
        if hasattr(e, "slots")
        for t in e.tokens
    ]
    text = loaded.tokenizer.decode(plain[5:6])
    config = replace(DECODE, stop=(text,), mode="one")
    ours = list(engine.generate(SAID, config))[-1]
    *_, (done, _) = watched_generate(loaded, prompt, config, Stopwatch())
    assert (done.reason, done.tokens) == (ours.reason, ours.tokens)
    ending = replace(loaded, special=replace(loaded.special, eos_ids=frozenset(plain[7:8])))
    *_, (done, _) = watched_generate(ending, prompt, DECODE, Stopwatch())
    assert (done.reason, done.tokens) == ("eos", plain.index(plain[7]) + 1)
    asked = iter([False, False, True, True, True])
    *_, (done, _) = watched_generate(
        loaded, prompt, DECODE, Stopwatch(), stopped=lambda: next(asked)
    )
    assert (done.reason, done.tokens) == ("stopped", 3)
