"""Races through the page's handlers and its endpoint."""

import json

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from mars_core.race.records import read_race
from mars_core.race.verdict import verdict_of
from mars_core.ui.demo import build_demo, launch
from tests.ui.scripted import EOS, ScriptedEngine, handlers_for, ready
from tests.ui.test_demo import SETTINGS, Request

PASSES = [["The", " sky"], [" is"], [" blue", ".", EOS]]


def ask(handlers, visitor, prompt, lanes=(), repeats=1, settings=SETTINGS):
    return json.loads(
        handlers.ask_race(visitor, prompt, None, "", *settings, list(lanes), 0.7, repeats)
    )


def test_the_page_is_sent_the_recording():
    handlers, visitor = handlers_for(ready(ScriptedEngine(PASSES))), Request("v")
    line = ask(handlers, visitor, "Why?", repeats=2)
    assert (line["view"], line["state"]) == ("race", "waiting")
    opening, _, text = list(handlers.run(visitor))[-1].partition("\n")
    assert json.loads(opening)["view"] == "race"
    race = read_race(text.encode())
    assert [lane.info.name for lane in race.lanes] == ["AR", "MARS"]
    assert race.lanes[0].records[0].prompt.messages[-1].content == "Why?"
    assert verdict_of(race).repeats == 2
    assert len(handlers.runs) == 0


def test_stop_ends_a_race_before_its_next_forward():
    handlers = handlers_for(ready(ScriptedEngine([["a"]] * 50, pause=0.02)))
    visitor = Request("v")
    ask(handlers, visitor, "Why?", repeats=3)
    texts = handlers.run(visitor)
    next(texts)
    next(texts)
    handlers.stop(visitor)
    *_, text, last = texts
    assert json.loads(last)["state"] == "cut"
    records = [json.loads(line) for line in text.splitlines()]
    assert records[-1]["reason"] == "stopped"
    assert sum(record["type"] == "lane" for record in records) == 1


class StopsWithTheFirstLane(ScriptedEngine):
    def race(self, messages, config, control):
        for record in super().race(messages, config, control):
            yield record
            if record.type == "done":
                control.stop()


def test_a_race_that_is_stopped_as_its_first_lane_ends_says_so():
    """No record does: the lane has an end of its own, and there is no verdict."""
    handlers, visitor = handlers_for(ready(StopsWithTheFirstLane(PASSES))), Request("v")
    ask(handlers, visitor, "Why?")
    *_, text, last = handlers.run(visitor)
    assert json.loads(text.splitlines()[-1])["reason"] == "eos"
    assert json.loads(last) == {"type": "page", "view": "race", "state": "cut", "text": ""}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": " "}, "Write a prompt"),
        ({"repeats": 0}, "Repeats is 0"),
        ({"lanes": ["slow"]}, "Lane is 'slow'"),
        ({"settings": (*SETTINGS[:-1], 99)}, "Drafts is 99"),
        ({"settings": ("tau", 2.0, *SETTINGS[2:])}, "Tau is 2"),
    ],
)
def test_what_cannot_be_raced_is_said(changes, words):
    handlers = handlers_for(ready(ScriptedEngine(PASSES)))
    line = ask(handlers, Request("v"), **{"prompt": "Why?", **changes})
    assert (line["view"], line["state"]) == ("race", "error")
    assert words in line["text"]
    assert len(handlers.runs) == 0


@pytest.fixture(scope="module")
def client():
    demo = build_demo(ready(ScriptedEngine(PASSES)))
    launch(demo, "127.0.0.1", None)
    yield Client(demo.local_url, verbose=False)
    demo.close()


def test_a_client_gets_the_recording(client):
    text = client.predict("Why?", repeats=2, api_name="/race")
    race = read_race(text.encode())
    last = json.loads(text.splitlines()[-1])
    assert last["type"] == "verdict"
    assert last["lanes"][1]["tokens"] == verdict_of(race).lanes[1].tokens == 6


def test_bad_input_is_a_sentence_for_clients_too(client):
    with pytest.raises(AppError, match="Lane is 'x'"):
        client.predict("Why?", lanes=["x"], api_name="/race")
