"""A race of batches: the same prompts with each cache, and what it comes to."""

from __future__ import annotations

import csv
import io
import json

import pytest

from mars_core import trace
from mars_core.batch_figures import batch_figures
from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.engine import Engine
from mars_core.errors import MarsError
from mars_core.export.recording import lines, read_recording
from mars_core.export.slots import slots_csv
from mars_core.models.load import load
from mars_core.race.lanes import Racer
from mars_core.race.records import collect, read_race
from mars_core.race.settings import MAX_PROMPTS, BatchRaceConfig, check_prompts
from mars_core.race.table import table
from mars_core.race.verdict import verdict_of
from mars_core.trace import Message, dump_record
from tests.tiny import tiny_checkpoint, tiny_llama

ASKED = ["Tell me of the sea.", "Why?", "One, two and then the rest", "the other", "and on"]
CONVERSATIONS = [[Message(role="user", content=text)] for text in ASKED]
DECODE = DecodeConfig(tau=0.7, max_new_tokens=12)
ALL = ("ar", "none", "block", "cursor", "verified", "paced")


@pytest.fixture(scope="module")
def racer(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("batches") / "tiny", model, mask=True)
    engine = Engine(load(str(folder), device="cpu", dtype="float64"))
    return Racer(engine, lambda: engine)


def raced(racer, config, control=None):
    control = control or LiveControl(config.decode)
    return list(racer.batches(CONVERSATIONS, config, control))


def texts(lane):
    return {r.row: r.text for r in lane.records if isinstance(r, trace.DoneRecord)}


@pytest.fixture(scope="module")
def records(racer):
    config = BatchRaceConfig(DECODE, rows=2, cache_block=4, lanes=ALL, repeats=2)
    return raced(racer, config)


def test_every_lane_answers_all_prompts(records):
    race = collect(records)
    assert (race.header.batch.prompts, race.header.batch.rows) == (5, 2)
    ar, none, block, cursor, verified, paced = race.lanes
    for lane in race.lanes:
        assert set(texts(lane)) == set(range(5))
        assert len(lane.timings) == 1
    assert texts(ar) == texts(verified)
    assert texts(none) == texts(cursor)
    settings = [lane.records[0].settings for lane in race.lanes]
    assert [s["mode"] for s in settings] == ["one", "tau", "tau", "tau", "verified", "tau"]
    assert [s["cache"] for s in settings] == ["cursor", "none", "block", *["cursor"] * 3]
    assert [s["adaptive_masks"] for s in settings] == [*[False] * 5, True]
    assert paced.records[0].costs
    assert settings[2]["cache_block"] == 4
    assert "idle" in {r.type for r in block.records}


def test_the_verdict_is_of_all_rows_together(records):
    race = collect(records)
    verdict = records[-1]
    assert verdict == verdict_of(race)
    assert verdict.repeats == 2
    for result, lane in zip(verdict.lanes, race.lanes, strict=True):
        figures = batch_figures(lane.records)
        assert (result.tokens, result.forwards) == (figures.tokens, figures.forwards)
        assert result.tokens_per_forward == pytest.approx(figures.per_forward)
        assert result.idle == figures.idle
        times = sorted([figures.decode_ms, lane.timings[0].decode_ms])
        assert result.seconds == pytest.approx(sum(times) / 2000)
        assert lane.timings[0].tokens == figures.tokens
        assert result.agreement == (figures.agreed / figures.seen if figures.seen else None)
    assert verdict.lanes[0].tokens_per_forward == 1
    assert verdict.lanes[2].idle > 0
    assert verdict.lanes[3].idle == 0
    assert verdict.lanes[4].says.endswith("5 of 5 texts are those of AR.")
    assert "Rows waited for others" in verdict.lanes[2].says
    assert "5 prompts, 2 at once" in table(race.header, verdict)


def test_the_recording_comes_back_as_it_was(records):
    text = "".join(dump_record(record) + "\n" for record in records)
    race = read_race(text.encode())
    assert lines(read_recording(text.encode())) == text
    assert race.header.batch.rows == 2
    rows = csv.DictReader(io.StringIO(slots_csv(race)))
    assert {(row["lane"], row["row"]) for row in rows} == {
        (lane.info.name, str(row)) for lane in race.lanes for row in range(5)
    }


def test_stop_ends_it_with_what_there_is(racer):
    config = BatchRaceConfig(DECODE, rows=2, lanes=("ar", "block", "cursor"))
    control = LiveControl(DECODE)
    found = []
    for record in racer.batches(CONVERSATIONS, config, control):
        found.append(record)
        if record.type == "lane" and record.lane == 2:
            control.stop()
    assert found[-1].type == "verdict"
    assert [result.lane for result in found[-1].lanes] == [0, 1]


def test_a_batch_that_was_cut_off_has_no_verdict(records):
    cut = next(i for i, record in enumerate(records) if record.type == "done" and i > 20)
    race = collect(records[:cut])
    assert verdict_of(race) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lanes": ("ar",)}, "two lanes"),
        ({"lanes": ("cursor", "ar")}, "first lane"),
        ({"lanes": ("ar", "cursor", "cursor")}, "twice"),
        ({"lanes": ("ar", "static")}, "lane is 'static'"),
        ({"rows": 0}, "rows is 0"),
        ({"rows": 1000}, "rows is 1000"),
        ({"cache_block": 0}, "cache block is 0"),
        ({"repeats": 0}, "repeats is 0"),
    ],
)
def test_bad_settings_are_one_line(changes, words):
    with pytest.raises(MarsError, match=words):
        BatchRaceConfig(**changes)


def test_some_prompts_and_not_too_many():
    check_prompts(["x"])
    with pytest.raises(MarsError, match="one a line"):
        check_prompts([])
    with pytest.raises(MarsError, match="too many"):
        check_prompts(["x"] * (MAX_PROMPTS + 1))


def test_a_prompt_that_cannot_be_answered_is_said_at_once(racer):
    long = [[Message(role="user", content="sea " * 400)]]
    with pytest.raises(MarsError, match="shorten it"):
        racer.batches(long, BatchRaceConfig(DECODE), LiveControl(DECODE))


def test_a_bad_batch_line_is_named(records):
    text = "".join(dump_record(record) + "\n" for record in records)
    first = json.loads(text.split("\n", 1)[0])
    first["batch"]["rows"] = -1
    with pytest.raises(MarsError, match="line 1 at"):
        read_race((json.dumps(first) + "\n").encode())
