"""The page as Gradio sees it, and its endpoint, over a scripted engine."""

import json
from concurrent.futures import Future
from dataclasses import asdict
from itertools import pairwise

import gradio as gr
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.models.progress import LatestProgress
from mars_core.trace import DoneRecord, Header, StepRecord, parse_record
from mars_core.ui import view
from mars_core.ui.demo import build_demo, check_address, launch, launch_options
from mars_core.ui.line import Line
from mars_core.ui.model_handlers import ModelHandlers
from mars_core.ui.view import Transcript
from tests.ui.scripted import EOS, ScriptedEngine, handlers_for, ready

PASSES = [["The", " sky"], [" is"], [" blue", ".", EOS]]


class Request:
    """As much of gr.Request as the handlers read."""

    client = None

    def __init__(self, session_hash):
        self.session_hash = session_hash


SETTINGS = ("tau", 0.9, 4, 128, 0.0, 1.0, 1.0, 0, "probability", False, 2)


def ask(handlers, visitor, prompt, history=None, system=""):
    """Ask as the page does; the line for the player."""
    line, _box = handlers.ask(visitor, prompt, history, system, *SETTINGS)
    return line


def message(line):
    """What the page says in a line of its own."""
    return json.loads(line)["text"]


def parse(text):
    """The records of a trace, with the page's own opening line or without."""
    _, opened, rest = text.partition('"at":0}\n')
    text = rest if opened else text
    return [parse_record(line, number) for number, line in enumerate(text.splitlines(), 1)]


@pytest.fixture(scope="module")
def served():
    engine = ScriptedEngine(PASSES, pause=0.01)
    demo = build_demo(ready(engine))
    launch(demo, "127.0.0.1", None)
    yield demo, engine
    demo.close()


@pytest.fixture(scope="module")
def client(served):
    demo, _ = served
    return Client(demo.local_url, verbose=False)


def test_the_page_is_never_shared_and_fetches_nothing():
    options = launch_options()
    assert options["head"].startswith("<style id=")
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


def test_generate_takes_a_system_prompt_and_history(client):
    history = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    text = client.predict("And?", system="Be brief.", history=history, api_name="/generate")
    said = [message.content for message in parse(text)[0].prompt.messages]
    assert said == ["Be brief.", "Why?", "So.", "And?"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompt": " "}, "Write a prompt"),
        ({"prompt": "x", "tau": 2.0}, "Tau is 2"),
        ({"prompt": "x", "history": [{"role": "user", "content": "y"}]}, "ends with the assistant"),
    ],
)
def test_bad_input_is_a_sentence_for_clients_too(client, arguments, words):
    with pytest.raises(AppError, match=words):
        client.predict(**arguments, api_name="/generate")


def test_what_is_public_is_typed(client):
    named = client.view_api(return_format="dict")["named_endpoints"]
    assert list(named) == ["/generate", "/race", "/batch"]
    types = {
        p["parameter_name"]: p["python_type"]["type"] for p in named["/generate"]["parameters"]
    }
    assert types["prompt"] == "str"
    assert types["tau"] == "float"
    assert types["max_new_tokens"] == "int"
    assert "Literal" in types["mode"]


def test_page_flow_ask_run_stop():
    handlers = handlers_for(ready(ScriptedEngine([["a"]] * 50, pause=0.02)))
    visitor = Request("v")
    assert '"waiting"' in ask(handlers, visitor, "Why?")
    texts = handlers.run(visitor)
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
    handlers = handlers_for(ready(ScriptedEngine([["a"]] * 50, pause=0.01)))
    visitor = Request("v")
    assert not isinstance(handlers.whole(visitor), str)
    ask(handlers, visitor, "Why?")
    last = list(handlers.run(visitor))[-1]
    assert len(last) < 2500
    assert len(parse(handlers.whole(visitor))) == 53
    handlers.leave(visitor)
    assert not isinstance(handlers.whole(visitor), str)


def test_asking_again_stops_the_run_before():
    handlers = handlers_for(ready(ScriptedEngine([["a"]] * 50, pause=0.02)))
    visitor = Request("v")
    ask(handlers, visitor, "first")
    first = handlers.run(visitor)
    next(first)
    ask(handlers, visitor, "second")
    assert parse(list(first)[-1])[-1].reason == "stopped"
    second = parse(list(handlers.run(visitor))[-1])
    assert second[0].prompt.messages[-1].content == "second"
    assert second[-1].reason == "length"


def test_a_run_stopped_while_it_waits_never_begins():
    engine = ScriptedEngine([["a"]])
    handlers = handlers_for(ready(engine))
    visitor = Request("v")
    ask(handlers, visitor, "Why?")
    handlers.stop(visitor)
    (text,) = handlers.run(visitor)
    assert '"idle"' in text
    assert engine.most_running == 0


def test_refused_input_is_a_sentence_and_nothing_runs():
    handlers = handlers_for(ready(ScriptedEngine([["a"]])))
    visitor = Request("v")
    assert "Write a prompt" in ask(handlers, visitor, "  ")
    (output,) = handlers.run(visitor)
    assert not isinstance(output, str)


TOO_LONG = "the prompt has 9 tokens, the context holds 8"


def test_what_the_model_cannot_take_is_said_at_once_and_stays_in_the_box():
    handlers = handlers_for(ready(ScriptedEngine([["a"]], error=TOO_LONG)))
    visitor = Request("v")
    line, box = handlers.ask(visitor, "Why?", None, "", *SETTINGS)
    assert "The prompt has 9 tokens, the context holds 8." in line
    assert box != ""
    assert len(handlers.runs) == 0


def test_a_prompt_asked_while_the_model_loads_waits_for_it():
    engine = Future()
    handlers = handlers_for(engine)
    visitor = Request("v")
    line, box = handlers.ask(visitor, "Why?", None, "", *SETTINGS)
    assert message(line) == view.LOADING
    assert box != ""  # it might yet be refused
    texts = handlers.run(visitor)
    assert message(next(texts)) == view.LOADING
    engine.set_result(ScriptedEngine(PASSES))
    assert parse(list(texts)[-1])[-1].text == "The sky is blue."


@pytest.mark.parametrize("failure", ["no such model", TOO_LONG])
def test_what_fails_once_the_model_is_there_is_a_sentence(failure):
    engine = Future()
    handlers = handlers_for(engine)
    visitor = Request("v")
    ask(handlers, visitor, "Why?")
    texts = handlers.run(visitor)
    next(texts)
    if failure == TOO_LONG:
        engine.set_result(ScriptedEngine([], error=TOO_LONG))
    else:
        engine.set_exception(MarsError(failure))
    assert view.sentence(MarsError(failure)) in list(texts)[-1]
    assert len(handlers.runs) == len(handlers.line) == 0


def test_head_and_notices_come_with_the_model():
    head, notices = ModelHandlers(ready(ScriptedEngine(PASSES)), Line()).shown()
    assert "scripted · not MARS-trained" in head
    assert "Not trained for MARS" in notices
    failed = Future()
    failed.set_exception(MarsError("no such model"))
    assert "No such model." in ModelHandlers(failed, Line()).shown()[1]


def test_a_page_follows_the_model_as_it_comes():
    engine, loading = Future(), LatestProgress()
    model = ModelHandlers(engine, Line(), "small", loading)
    assert "small · loading" in model.shown()[0]
    loading("download", 12, 100)
    shown = model.opened()
    assert "small · downloading 12%" in next(shown)[0]
    assert model.why_waiting() == "The model is being loaded … (downloading 12% …)"
    loading("convert", 1, 2)
    assert "converting (once) 50%" in next(shown)[0]
    engine.set_result(ScriptedEngine(PASSES))
    assert "scripted · not MARS-trained" in list(shown)[-1][0]


@pytest.mark.parametrize("error", [MarsError("no such model"), RuntimeError("/secret")])
def test_a_model_that_does_not_come_is_told_of(error):
    engine = Future()
    shown = ModelHandlers(engine, Line(), "small", LatestProgress("loading")).opened()
    next(shown)
    engine.set_exception(error)
    head, notices = list(shown)[-1]
    assert "no model" in head
    assert ("No such model." if isinstance(error, MarsError) else "log has it.") in notices
    assert "/secret" not in notices


def test_why_no_gpu_was_lent_is_told():
    class Poor(ScriptedEngine):
        def generate(self, messages, config, control=None):
            raise gr.Error("You have exceeded your GPU quota.")

    handlers, visitor = handlers_for(ready(Poor([]))), Request("v")
    ask(handlers, visitor, "Why?")
    assert message(list(handlers.run(visitor))[-1]) == "You have exceeded your GPU quota."
    assert len(handlers.runs) == len(handlers.line) == 0


def test_the_second_visitor_is_told_their_place():
    handlers = handlers_for(ready(ScriptedEngine([["a"]] * 3)))
    runs = []
    for name in "abc":
        ask(handlers, Request(name), f"from {name}")
        runs.append(handlers.run(Request(name)))
    first, second, third = runs
    next(first)
    assert "you are next" in next(second)
    assert "number 2 in line" in next(third)
    first.close()
    assert '"header"' in next(second)
    assert "you are next" in next(third)
    second.close()
    assert parse(list(third)[-1])[0].prompt.messages[-1].content == "from c"


def test_stop_ends_a_run_that_waits_in_line():
    engine = ScriptedEngine([["a"]] * 3)
    handlers = handlers_for(ready(engine))
    runs = []
    for name in "ab":
        ask(handlers, Request(name), "Why?")
        runs.append(handlers.run(Request(name)))
        next(runs[-1])
    handlers.stop(Request("b"))
    assert '"idle"' in list(runs[1])[-1]
    assert len(handlers.line) == 1
    runs[0].close()
    assert len(handlers.line) == 0


def test_again_takes_the_next_seed_only_when_sampling():
    handlers = handlers_for(ready(ScriptedEngine(PASSES)))
    sampling = (*SETTINGS[:4], 0.7, *SETTINGS[5:])
    for settings, seed in ((SETTINGS, 0), (sampling, 1)):
        _line, shown = handlers.again(Request("v"), "Why?", None, "", *settings)
        assert shown == seed
        assert parse(list(handlers.run(Request("v")))[-1])[0].seed == seed
    line, _ = handlers.again(Request("v"), "", None, "", *SETTINGS)
    assert "Write a prompt" in line


def test_history_and_system_prompt_reach_the_model():
    handlers = handlers_for(ready(ScriptedEngine(PASSES)))
    history = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    ask(handlers, Request("v"), "And?", history, "Be brief.")
    run = parse(list(handlers.run(Request("v")))[-1])
    said = [(m.role, m.content) for m in run[0].prompt.messages]
    assert said == [
        ("system", "Be brief."), ("user", "Why?"), ("assistant", "So."), ("user", "And?"),
    ]  # fmt: skip


def test_a_bug_is_logged_and_shown_without_its_traceback(caplog):
    engine = ScriptedEngine([[]])  # a pass without a token is impossible, and fails
    handlers = handlers_for(ready(engine))
    visitor = Request("v")
    ask(handlers, visitor, "Why?")
    text = list(handlers.run(visitor))[-1]
    assert '"failed"' in text
    assert "Traceback" not in text
    assert "IndexError" in caplog.text


def test_closing_the_page_mid_run_frees_the_engine():
    engine = ScriptedEngine([["a"]] * 50, pause=0.02)
    handlers = handlers_for(ready(engine))
    visitor = Request("v")
    ask(handlers, visitor, "Why?")
    texts = handlers.run(visitor)
    next(texts)
    assert engine.running == 1
    handlers.leave(visitor)
    texts.close()
    assert engine.running == 0


def test_a_busy_port_is_one_line(served):
    demo, engine = served
    port = int(demo.local_url.rstrip("/").rsplit(":", 1)[1])
    with pytest.raises(MarsError, match=f"port {port} .* in use"):
        launch(build_demo(ready(engine)), "127.0.0.1", port)


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
    handlers = handlers_for(ready(ScriptedEngine(PASSES)))
    run = parse(list(handlers.generate(Request("v"), "x"))[-1])
    assert run[0].settings == {**asdict(DecodeConfig()), "stop": []}
