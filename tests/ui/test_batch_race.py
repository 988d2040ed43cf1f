"""Races of batches through the page's handlers and its endpoint."""

import json

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from mars_core.engine import Engine
from mars_core.model_thread import ModelThread, ThreadedEngine
from mars_core.models.load import load
from mars_core.race.lanes import Racer
from mars_core.race.records import read_race
from mars_core.ui.demo import build_demo, launch
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.ui.scripted import handlers_for, ready
from tests.ui.test_demo import SETTINGS, Request

PROMPTS = "Tell me of the sea.\n\n  \nWhy?\nand on"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("batches") / "tiny", model, mask=True)
    own = Engine(load(str(folder), device="cpu", dtype="float64"))
    return ThreadedEngine(own, Racer(own, lambda: own), ModelThread())


def ask(handlers, visitor, prompts, lanes=("block", "cursor"), rows=2, cache_block=4):
    settings = [*SETTINGS[:3], 10, *SETTINGS[4:]]
    return json.loads(
        handlers.ask_batch(visitor, prompts, "", *settings, list(lanes), rows, cache_block)
    )


def test_the_page_is_sent_the_recording(engine):
    handlers, visitor = handlers_for(ready(engine)), Request("v")
    line = ask(handlers, visitor, PROMPTS)
    assert (line["view"], line["state"]) == ("race", "waiting")
    opening, _, text = list(handlers.run(visitor))[-1].partition("\n")
    assert json.loads(opening)["view"] == "race"
    race = read_race(text.encode())
    assert (race.header.batch.prompts, race.header.batch.rows) == (3, 2)
    assert len(race.lanes) == 3
    assert text.splitlines()[-1].startswith('{"type":"verdict"')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": " \n "}, "one a line"),
        ({"prompts": "x\n" * 100}, "too many"),
        ({"rows": 0}, "Rows is 0"),
        ({"cache_block": 2.5}, "Cache block is 2.5"),
        ({"lanes": ()}, "two lanes"),
        ({"prompts": "x " * 400}, "shorten it"),
    ],
)
def test_what_cannot_be_raced_is_said(engine, changes, words):
    handlers = handlers_for(ready(engine))
    line = ask(handlers, Request("v"), **{"prompts": PROMPTS, **changes})
    assert (line["view"], line["state"]) == ("race", "error")
    assert words in line["text"]
    assert len(handlers.runs) == 0


@pytest.fixture(scope="module")
def client(engine):
    demo = build_demo(ready(engine))
    launch(demo, "127.0.0.1", None)
    yield Client(demo.local_url, verbose=False)
    demo.close()


def test_a_client_gets_the_recording(client):
    text = client.predict(["Why?", "and on"], max_new_tokens=6, rows=2, api_name="/batch")
    last = json.loads(text.splitlines()[-1])
    assert last["type"] == "verdict"
    assert [lane["tokens"] for lane in last["lanes"]] == [12, 12, 12]


def test_a_prompt_of_several_lines_is_one(client):
    text = client.predict(["Why?\nAnd why?", "so"], max_new_tokens=4, api_name="/batch")
    joins = [one for line in text.splitlines() if (one := json.loads(line))["type"] == "join"]
    asked = [join["prompt"]["messages"][-1]["content"] for join in joins]
    assert asked == ["Why?\nAnd why?", "so"] * 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lanes": ["x"]}, "Lane is 'x'"),
        ({"lanes": 5}, "Lanes must be a list of names"),
        ({"lanes": [5]}, "Lanes must be a list of names"),
        ({"prompts": "Why?"}, "Prompts must be a list of texts"),
        ({"prompts": 7}, "Prompts must be a list of texts"),
        ({"prompts": ["Why?", 7]}, "Write a prompt"),
        ({"prompts": ["Why?", " "]}, "Write a prompt"),
        ({"prompts": []}, "write one a line"),
    ],
)
def test_bad_input_is_a_sentence_for_clients_too(client, given, words):
    with pytest.raises(AppError, match=words):
        client.predict(**{"prompts": ["Why?"], **given}, api_name="/batch")
