"""What the page costs: both sides answer the same, failures are one line, no time is asserted."""

import json
import sys
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from mars_core import cli
from mars_core.chromium import find_chromium
from mars_core.errors import MarsError
from mars_core.evaluation import page, page_browser, page_client, page_race
from mars_core.evaluation.measure import PROMPT, Conditions, Timing
from mars_core.race.records import Lane, LaneInfo, Race, RaceRecord
from mars_core.trace import DoneRecord
from mars_core.ui.demo import build_demo, launch
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.ui.scripted import EOS, ScriptedEngine

PASSES = [["Rain", " falls"], [" down"], [".", EOS]]
CHROMIUM = find_chromium()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("cost") / "tiny", model, mask=True))


@contextmanager
def serve(**changes):
    engine = Future()
    engine.set_result(ScriptedEngine(PASSES, pause=0.01, **changes))
    demo = build_demo(engine)
    try:
        yield launch(demo, "127.0.0.1", None)
    finally:
        demo.close()


@pytest.fixture(scope="module")
def address():
    with serve() as served:
        yield served


def run(seconds=1.0, text="Rain.", reader="gradio_client", **changes):
    done = DoneRecord(
        type="done", row=0, reason="length", text=text, tokens=2, forwards=2,
        prefill_ms=100.0, decode_ms=400.0,
    )  # fmt: skip
    return page_client.Run(reader, seconds, done, **changes)


COST = page.PageCost(
    conditions=Conditions("tiny", "random", "float32", "cpu, 2 threads", {"gradio": "6.31.0"}),
    settings={"mode": "tau", "tau": 0.9, "block_size": 4, "seed": 0},
    repeats=5,
    prompt=PROMPT,
    prompt_tokens=48,
    new_tokens=128,
    endpoint=page.compare([(run(), run(1.03, updates=62))] * 5),
    browser=None,
    browser_missing="no Chromium found",
)


def test_the_command_measures_the_page_it_serves(folder, capsys, monkeypatch):
    monkeypatch.setenv("CHROMIUM", "")
    monkeypatch.setenv("PATH", "")
    command = "bench-page --repeats 3 --max-new-tokens 24 --json"
    assert cli.main([*command.split(), "--model", folder, "--device", "cpu"]) == 0
    cost = json.loads(capsys.readouterr().out)
    assert cost["conditions"]["model"] == "tiny"
    assert cost["new_tokens"] == cost["settings"]["max_new_tokens"] == 24
    assert cost["browser"] is None
    assert "no Chromium found" in cost["browser_missing"]
    endpoint = cost["endpoint"]
    assert endpoint["same_text"]
    assert endpoint["updates"] >= 1
    for name in ("headless", "page", "ratio", "headless_decoder", "page_decoder"):
        assert 0 < endpoint[name]["low"] <= endpoint[name]["median"] <= endpoint[name]["high"]
    # the decoder's steps are a part of what is waited for
    assert endpoint["headless_decoder"]["high"] < endpoint["headless"]["high"]


def test_pairs_take_turns_and_the_first_runs_do_not_count():
    order = []

    def named(name):
        order.append(name)
        return len(order)

    pairs = page.in_pairs(lambda: named("alone"), lambda: named("page"), 3)
    warm_up = ["alone", "page"]
    assert order == [*warm_up, "alone", "page", "page", "alone", "alone", "page"]
    assert pairs == [(3, 4), (6, 5), (7, 8)]


def test_a_comparison_is_made_pair_by_pair():
    # a machine that gets slower and slower does not change a ratio
    pairs = [(run(speed), run(1.5 * speed, longest_task_ms=speed)) for speed in (1.0, 2.0, 8.0)]
    compared = page.compare(pairs)
    assert compared.ratio == Timing(1.5, 1.5, 1.5)
    assert compared.headless.median == 2.0
    assert compared.page_decoder == Timing(0.5, 0.5, 0.5)
    assert compared.longest_task_ms == 8.0
    assert compared.same_text
    assert not page.compare([*pairs, (run(), run(text="Snow."))]).same_text


def test_the_table_names_its_conditions_and_what_is_missing():
    shown = page.table(COST)
    for words in (
        "tiny (random), float32, cpu, 2 threads",
        "gradio 6.31.0",
        "48 prompt tokens + 128 new, mode tau, tau 0.9, B 4, seed 0",
        "medians of 5 interleaved pairs",
        "gradio_client over headless, by pair: 1.03 [1.03, 1.03] x, same text; 62 updates",
        "browser: left out, no Chromium found",
    ):
        assert words in shown
    pairs = [(run(), run(text="Snow.", reader="Chromium 156"))] * 3
    with_browser = page.table(replace(COST, browser=page.compare(pairs)))
    assert "Chromium 156 over headless" in with_browser
    assert "TEXTS DIFFER" in with_browser
    assert "under 50 ms" in with_browser
    assert "left out" not in with_browser


def test_a_client_that_dies_is_one_line(address, monkeypatch):
    children = []
    process = page_client.multiprocessing.context.SpawnProcess
    start = process.start
    monkeypatch.setattr(process, "start", lambda child: (children.append(child), start(child)))
    with page_client.client(address) as ask:
        assert ask.run(prompt=PROMPT).done.text == "Rain falls down."
        children[0].kill()
        children[0].join()
        with pytest.raises(MarsError, match="client of the page") as error:
            ask.run(prompt=PROMPT)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"), [({"prompt": " "}, "Write a prompt"), ({"nonsense": 1}, "nonsense")]
)
def test_what_the_page_refuses_is_one_line(address, settings, words):
    with (
        pytest.raises(MarsError, match=words) as error,
        page_client.client(address) as ask,
    ):
        ask.run(**settings)
    assert "\n" not in str(error.value)


def test_a_page_that_is_not_there_is_one_line():
    with (
        pytest.raises(MarsError, match="client of the page failed") as error,
        page_client.client("http://127.0.0.1:9"),
    ):
        pass
    assert "\n" not in str(error.value)


def in_turn(*found):
    """In the place of `in_pairs`: gives, or raises, one after the other."""
    left = iter(found)

    def in_pairs(*_):
        one = next(left)
        if isinstance(one, MarsError):
            raise one
        return one

    return in_pairs


def test_figures_of_the_client_are_kept_where_the_browser_fails(monkeypatch):
    closed = MarsError("the browser failed: it was closed")
    monkeypatch.setattr(page, "in_pairs", in_turn([(run(), run())] * 3, closed))
    cost = page.page_cost(ScriptedEngine(PASSES), serve, 3, 8)
    assert (cost.endpoint.reader, cost.browser) == ("gradio_client", None)
    assert cost.browser_missing == "the browser failed: it was closed"
    monkeypatch.setattr(page, "in_pairs", in_turn([(run(), run())] * 3))
    cost = page.page_cost(ScriptedEngine(PASSES), serve, 3, 8, with_browser=False)
    assert cost.browser_missing == "not asked for"


def test_too_few_repeats_are_refused():
    with pytest.raises(MarsError, match="at least 3"):
        page.page_cost(ScriptedEngine(PASSES), serve, repeats=2, new_tokens=8)
    with pytest.raises(MarsError, match="at least 3"):
        page_race.race_cost(ScriptedEngine(PASSES), serve, repeats=2, new_tokens=8)


def test_the_command_compares_races_lane_by_lane(folder, capsys):
    """Headless and through the endpoint the same tokens, each lane timed by its own steps."""
    command = "bench-page --race --repeats 3 --max-new-tokens 16 --no-browser --json"
    assert cli.main([*command.split(), "--model", folder, "--device", "cpu"]) == 0
    cost = json.loads(capsys.readouterr().out)
    assert (cost["reader"], cost["browser_missing"]) == ("gradio_client", "not asked for")
    assert [lane["name"] for lane in cost["lanes"]] == ["AR", "MARS, tau 0.9", "Verified"]
    assert cost["same_text"]
    assert cost["conditions"]["versions"]["gradio"]
    for lane in cost["lanes"]:
        for part in ("headless", "page", "ratio"):
            assert 0 < lane[part]["low"] <= lane[part]["median"] <= lane[part]["high"]


def races(*seconds, text="Rain."):
    """Races of two lanes that take so long, a pair for each two."""
    made = []
    for ar, mars in seconds:
        lanes = [
            Lane(LaneInfo(name=name, about=""), [run(text=text).done.model_copy(update=changes)])
            for name, changes in (
                ("AR", {"decode_ms": 1000.0 * ar}),
                ("MARS", {"decode_ms": 1000.0 * mars}),
            )
        ]
        header = RaceRecord(
            type="race", format="mars-race", version=1, created="now", repeats=1,
            lanes=tuple(lane.info for lane in lanes),
        )  # fmt: skip
        made.append(Race(header, lanes))
    return list(zip(made[::2], made[1::2], strict=True))


def test_races_are_compared_pair_by_pair(monkeypatch):
    pairs = races((2, 1), (3, 1), (4, 2), (6, 2), (8, 4), (12, 4))
    monkeypatch.setattr(page_race, "in_pairs", lambda *_: pairs)
    cost = page_race.race_cost(ScriptedEngine(PASSES), serve, 3, 8, with_browser=False)
    assert [lane.ratio for lane in cost.lanes] == [Timing(1.5, 1.5, 1.5), Timing(1, 1, 1)]
    assert cost.lanes[0].headless.median == 4
    assert cost.headless_speed_up == Timing(2, 2, 2)
    assert cost.page_speed_up == Timing(3, 3, 3)
    assert cost.same_text
    shown = page_race.table(cost)
    for words in (
        "scripted",
        "8 new tokens at most, tau 0.9, B 4; medians of 3 interleaved pairs of races",
        "page (gradio_client)",
        "same texts",
        "browser: left out, not asked for",
    ):
        assert words in shown
    monkeypatch.setattr(
        page_race, "in_pairs", lambda *_: [*pairs[1:], *races((2, 1), (2, 1), text="Snow.")]
    )
    other = page_race.race_cost(ScriptedEngine(PASSES), serve, 3, 8)
    assert (other.reader, other.browser_missing) == ("Chromium", "")
    assert "TEXTS DIFFER" in page_race.table(other)


def test_where_the_browser_fails_races_are_read_by_a_client(monkeypatch):
    closed = MarsError("the browser failed: it was closed")
    monkeypatch.setattr(page_race, "in_pairs", in_turn(closed, races(*[(2, 1)] * 6)))
    cost = page_race.race_cost(ScriptedEngine(PASSES), serve, 3, 8)
    assert (cost.reader, cost.browser_missing) == (
        "gradio_client",
        "the browser failed: it was closed",
    )


def test_a_run_that_did_not_end_is_refused():
    with pytest.raises(MarsError, match="'prefill'"):
        page_client.parse_done('{"type":"prefill","row":0,"tokens":1,"reused":0,"ms":1}')


def test_without_playwright_there_is_no_browser(address, monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with (
        pytest.raises(MarsError, match="Playwright is not installed"),
        page_browser.browser(address),
    ):
        pass


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium found (PATH, or CHROMIUM=/path)")
def test_a_real_browser_is_a_reader_too():
    found = page.run_browser(serve, new_tokens=8)
    assert found.reader.startswith("Chromium ")
    assert found.seconds > 0.03  # the engine's pauses
    assert found.longest_task_ms >= 0
    assert found.done.text == "Rain falls down."


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium found (PATH, or CHROMIUM=/path)")
def test_a_real_browser_races_too():
    race = page_race.race_in_browser(serve, new_tokens=8)
    assert [lane.info.name for lane in race.lanes] == ["AR", "MARS"]
    assert page_race.texts(race) == ("Rain falls down.", "Rain falls down.")
    assert all(page_race.seconds(lane) > 0 for lane in race.lanes)
    assert not any(lane.timings for lane in race.lanes)


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium found (PATH, or CHROMIUM=/path)")
def test_what_the_page_refuses_in_the_browser_is_one_line():
    with pytest.raises(MarsError, match="The model is ill") as error:
        page.run_browser(partial(serve, error="the model is ill"), new_tokens=8)
    assert "\n" not in str(error.value)
