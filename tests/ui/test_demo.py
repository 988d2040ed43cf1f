"""The page as Gradio sees it, and its endpoint, over a scripted engine."""

import threading
from dataclasses import asdict
from itertools import pairwise

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.trace import DoneRecord, Header, StepRecord, parse_record
from mars_core.ui.demo import build_demo, check_address, launch, launch_options
from mars_core.ui.handlers import Handlers
from mars_core.ui.view import Transcript
from tests.ui.scripted import EOS, ScriptedEngine

PASSES = [["The", " sky"], [" is"], [" blue", ".", EOS]]


class Request:
    """As much of gr.Request as the handlers read."""

    def __init__(self, session_hash):
        self.session_hash = session_hash


SETTINGS = ("tau", 0.9, 4, 128, 0.0, 1.0, 1.0, 0, "probability", False)


def parse(text):
    """The records of a trace, with the page's own opening line or without."""
    _, opened, rest = text.partition('"at":0}\n')
    text = rest if opened else text
    return [parse_record(line, number) for number, line in enumerate(text.splitlines(), 1)]


@pytest.fixture(scope="module")
def served():
    engine = ScriptedEngine(PASSES, pause=0.01)
    demo = build_demo(engine)
    launch(demo, "127.0.0.1", None)
    yield demo, engine
    demo.close()


@pytest.fixture(scope="module")
def client(served):
    demo, _ = served
    return Client(demo.local_url, verbose=False)


def test_the_page_is_never_shared_and_fetches_nothing():
    options = launch_options()
    assert options["head"].startswith("<style>")
    assert "http" not in options["head"]


def test_generate_returns_a_trace(client):
    run = parse(client.predict("Why?", api_name="/generate"))
    assert isinstance(run[0], Header)
    assert run[0].prompt.messages[-1].content == "Why?"
    assert [len(r.tokens) for r in run if isinstance(r, StepRecord)] == [2, 1, 3]
    assert isinstance(run[-1], DoneRecord)
    assert run[-1].text == "The sky is blue."


def test_generate_streams_a_growing_text(client):
    outputs = list(client.submit("Why?", tau=0.5, api_name="/generate"))
    assert parse(outputs[-1])[0].settings["tau"] == 0.5
    assert all(later.startswith(earlier) for earlier, later in pairwise(outputs))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"prompt": " "}, "Write a prompt"), ({"prompt": "x", "tau": 2.0}, "Tau is 2")],
)
def test_bad_input_is_a_sentence_for_clients_too(client, arguments, words):
    with pytest.raises(AppError, match=words):
        client.predict(**arguments, api_name="/generate")


def test_only_generate_is_public_and_it_is_typed(client):
    named = client.view_api(return_format="dict")["named_endpoints"]
    assert list(named) == ["/generate"]
    types = {
        p["parameter_name"]: p["python_type"]["type"] for p in named["/generate"]["parameters"]
    }
    assert types["prompt"] == "str"
    assert types["tau"] == "float"
    assert types["max_new_tokens"] == "int"
    assert "Literal" in types["mode"]


def test_clients_take_turns_and_none_are_mixed(served):
    demo, engine = served
    engine.most_running = 0
    answers = {}

    def call(index):
        client = Client(demo.local_url, verbose=False)
        answers[index] = client.predict(f"question {index}", api_name="/generate")

    threads = [threading.Thread(target=call, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    prompts = {i: parse(text)[0].prompt.messages[-1].content for i, text in answers.items()}
    assert prompts == {index: f"question {index}" for index in range(6)}
    assert engine.most_running == 1


def test_page_flow_ask_run_stop():
    handlers = Handlers(ScriptedEngine([["a"]] * 50, pause=0.02))
    visitor = Request("v")
    assert '"waiting"' in handlers.ask(visitor, "Why?", *SETTINGS)
    texts = handlers.run(visitor, "Why?", *SETTINGS)
    next(texts)
    handlers.steer(visitor, "tau", 0.25)
    next(texts)
    handlers.stop(visitor)
    run = parse(list(texts)[-1])
    assert [r.tau for r in run if r.type == "control"] == [0.25]
    assert run[-1].reason == "stopped"
    assert len(handlers.runs) == 0


def test_a_page_that_missed_a_part_gets_the_whole(monkeypatch):
    monkeypatch.setattr(Transcript, "window", 2000)
    handlers = Handlers(ScriptedEngine([["a"]] * 50, pause=0.01))
    visitor = Request("v")
    assert not isinstance(handlers.whole(visitor), str)
    handlers.ask(visitor, "Why?", *SETTINGS)
    last = list(handlers.run(visitor, "Why?", *SETTINGS))[-1]
    assert len(last) < 2500
    assert len(parse(handlers.whole(visitor))) == 53
    handlers.leave(visitor)
    assert not isinstance(handlers.whole(visitor), str)


def test_asking_again_stops_the_run_before():
    handlers = Handlers(ScriptedEngine([["a"]] * 50, pause=0.02))
    visitor = Request("v")
    handlers.ask(visitor, "first", *SETTINGS)
    first = handlers.run(visitor, "first", *SETTINGS)
    next(first)
    handlers.ask(visitor, "second", *SETTINGS)
    assert parse(list(first)[-1])[-1].reason == "stopped"
    second = parse(list(handlers.run(visitor, "second", *SETTINGS))[-1])
    assert second[0].prompt.messages[-1].content == "second"
    assert second[-1].reason == "length"


def test_a_run_stopped_while_it_waits_never_begins():
    engine = ScriptedEngine([["a"]])
    handlers = Handlers(engine)
    visitor = Request("v")
    handlers.ask(visitor, "Why?", *SETTINGS)
    handlers.stop(visitor)
    (text,) = handlers.run(visitor, "Why?", *SETTINGS)
    assert '"idle"' in text
    assert engine.most_running == 0


def test_refused_input_is_a_sentence_and_nothing_runs():
    handlers = Handlers(ScriptedEngine([["a"]]))
    visitor = Request("v")
    assert "Write a prompt" in handlers.ask(visitor, "  ", *SETTINGS)
    (output,) = handlers.run(visitor, "  ", *SETTINGS)
    assert not isinstance(output, str)


def test_an_engine_error_is_a_sentence_and_the_visitor_is_forgotten():
    handlers = Handlers(ScriptedEngine([], error="the prompt has 9 tokens, the context holds 8"))
    visitor = Request("v")
    handlers.ask(visitor, "Why?", *SETTINGS)
    (text,) = handlers.run(visitor, "Why?", *SETTINGS)
    assert "The prompt has 9 tokens, the context holds 8." in text
    assert len(handlers.runs) == 0


def test_a_bug_is_logged_and_shown_without_its_traceback(caplog):
    engine = ScriptedEngine([[]])  # a pass without a token is impossible, and fails
    handlers = Handlers(engine)
    visitor = Request("v")
    handlers.ask(visitor, "Why?", *SETTINGS)
    text = list(handlers.run(visitor, "Why?", *SETTINGS))[-1]
    assert '"failed"' in text
    assert "Traceback" not in text
    assert "IndexError" in caplog.text


def test_closing_the_page_mid_run_frees_the_engine():
    engine = ScriptedEngine([["a"]] * 50, pause=0.02)
    handlers = Handlers(engine)
    visitor = Request("v")
    handlers.ask(visitor, "Why?", *SETTINGS)
    texts = handlers.run(visitor, "Why?", *SETTINGS)
    next(texts)
    assert engine.running == 1
    handlers.leave(visitor)
    texts.close()
    assert engine.running == 0


def test_a_busy_port_is_one_line(served):
    demo, engine = served
    port = int(demo.local_url.rstrip("/").rsplit(":", 1)[1])
    with pytest.raises(MarsError, match=f"port {port} .* in use"):
        launch(build_demo(engine), "127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.9", "nonsense.invalid"])
def test_an_address_that_is_not_ours_is_one_line(host):
    with pytest.raises(MarsError, match="not to be had") as caught:
        check_address(host, 0)
    assert "in use" not in str(caught.value)


def test_whole_numbers_may_come_as_floats(client):
    records = parse(client.predict("Hi", max_new_tokens=4.0, seed=2.0, api_name="/generate"))
    settings = records[0].settings
    assert (settings["max_new_tokens"], settings["seed"]) == (4, 2)
    assert isinstance(settings["max_new_tokens"], int)


def test_defaults_of_the_endpoint_are_those_of_the_config():
    handlers = Handlers(ScriptedEngine(PASSES))
    run = parse(list(handlers.generate("x"))[-1])
    assert run[0].settings == {**asdict(DecodeConfig()), "stop": []}
