"""A recording of a race: round trips, and files from people nobody knows."""

from __future__ import annotations

import json

import pytest

from mars_core.race.records import collect, is_race, lines_of, read_race
from mars_core.race.verdict import verdict_of
from mars_core.trace import TraceError, dump_record, write_trace
from tests.race.scripted import ONE_BY_ONE, SEVERAL, entrant, raced

RECORDS = raced(entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL), repeats=2)
LINES = [dump_record(record) for record in RECORDS]


def data(lines):
    return "".join(line + "\n" for line in lines).encode()


def test_a_race_read_back_is_the_race(tmp_path):
    path = tmp_path / "race.jsonl"
    write_trace(path, RECORDS)
    race = read_race(path)
    assert [dump_record(r) for r in lines_of(race, verdict_of(race))] == LINES
    assert is_race(path.read_bytes().splitlines()[0])
    assert not is_race(LINES[2].encode())


def test_a_verdict_is_worked_out_again_not_trusted():
    boast = json.loads(LINES[-1])
    boast["lanes"][1]["tokens_per_second"] = 1e6
    race = read_race(data([*LINES[:-1], json.dumps(boast)]))
    assert verdict_of(race) == RECORDS[-1]


def test_one_that_was_cut_off_is_no_error():
    for count in range(1, len(LINES)):
        race = read_race(data(LINES[:count]))
        assert len(race.lanes) == 2
        assert (verdict_of(race) is not None) == (count >= len(LINES) - 3)


def without(index):
    return [line for i, line in enumerate(LINES) if i != index]


def changed(index, **fields):
    return [
        json.dumps({**json.loads(x), **fields}) if i == index else x for i, x in enumerate(LINES)
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "empty"),
        (without(0), "line 1: the race belongs on line 1"),
        ([*LINES, LINES[0]], f"line {len(LINES) + 1}: the race belongs on line 1"),
        (without(1), "line 2: a lane is missing before it"),
        (without(2), "line 3: a lane's first record is its header"),
        ([*LINES[:3], *LINES[2:]], "line 4: a lane's first record is its header"),
        (changed(1, lane=2), "line 2: there is no lane 2"),
        ([*LINES[:3], *LINES[1:]], "line 4: lane 0 is there already"),
        (changed(len(LINES) - 2, lane=7), f"line {len(LINES) - 1}: there is no lane 7"),
        (changed(0, lanes=[]), "line 1 at race.lanes"),
        (changed(0, version=2), "line 1 at race.version"),
        ([LINES[0], "{"], "line 2"),
        ([LINES[0], '{"type":"other"}'], "line 2"),
    ],
)
def test_what_is_no_race_is_refused_with_its_line(lines, words):
    with pytest.raises(TraceError) as caught:
        read_race(data(lines))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fields_of_a_later_version_are_kept():
    lines = changed(0, colour="red")
    race = collect(RECORDS)
    assert race.header == RECORDS[0]
    assert json.loads(dump_record(read_race(data(lines)).header))["colour"] == "red"
