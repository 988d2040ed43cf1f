"""The page in a real Chromium: a run is steered, stopped, repeated, and nothing is executed."""

import time
from itertools import pairwise

import pytest

from mars_core.ui.view import Transcript
from tests.browser.harness import (
    PAYLOAD,
    WAIT_MS,
    ask,
    needs_chromium,
    open_page,
    records,
    serve,
    wait_forwards,
    wait_state,
)
from tests.ui.scripted import EOS, ScriptedEngine

pytestmark = needs_chromium


def set_tau(page, value):
    """Move the slider itself, as a hand does; return how long until the trace shows it."""
    started = time.monotonic()
    page.locator("#tau input[type=range]").evaluate(
        "(range, value) => { range.value = value;"
        " range.dispatchEvent(new Event('input', { bubbles: true })); }",
        str(value),
    )
    page.wait_for_function(
        f"window.marsPlayer.records.some(r => r.type == 'control' && r.tau == {value})"
    )
    return time.monotonic() - started


def test_generate_move_tau_stop_and_generate_again(page, tiny_address):
    open_page(page, tiny_address)
    wait_state(page, "empty")
    ask(page, "Tell me a story.")
    wait_state(page, "running")
    wait_forwards(page, 5)
    took = set_tau(page, 0.25)
    assert took < 2, "the move took too long to come back as a record"
    control = next(r for r in records(page) if r["type"] == "control")
    wait_forwards(page, control["forward"] + 2)
    assert page.locator(".mars-chip").first.inner_text() == "tau 0.9 → 0.25"
    steps = [r for r in records(page) if r["type"] == "step"]
    assert all(r["tau"] == (0.25 if r["forward"] >= control["forward"] else 0.9) for r in steps)

    page.click("#stop")
    wait_state(page, "stopped")
    done = records(page)[-1]
    assert (done["type"], done["reason"]) == ("done", "stopped")
    assert page.locator(".mars-forwards dd").inner_text() == str(done["forwards"])
    assert page.locator(".mars-tokens dd").inner_text() == str(done["tokens"])
    assert "Stopped" in page.locator(".mars-status").inner_text()

    ask(page, "Tell me another.")
    page.wait_for_function(
        "window.marsPlayer.records[0]?.prompt.messages.at(-1).content == 'Tell me another.'"
    )
    # a run starts with the settings that are shown
    assert records(page)[0]["settings"]["tau"] == 0.25
    wait_forwards(page, 2)


def test_what_is_drawn_is_the_text_of_the_trace(page, tiny_address):
    open_page(page, tiny_address)
    page.fill("#sizes input >> nth=1", "24")
    ask(page, "Hello there.")
    wait_state(page, "done")
    done = records(page)[-1]
    shown = page.evaluate(
        "(() => { const text = document.querySelector('.mars-text').cloneNode(true);"
        " text.querySelectorAll('.mars-special, .mars-chip').forEach(n => n.remove());"
        " return text.textContent; })()"
    )
    assert shown == done["text"]
    steps = [r for r in records(page) if r["type"] == "step"]
    several = [len(r["tokens"]) for r in steps if len(r["tokens"]) > 1]
    counts = page.eval_on_selector_all(
        ".mars-text .mars-count", "nodes => nodes.map(n => Number(n.dataset.count))"
    )
    assert counts == several


def test_generating_while_a_run_goes_on_stops_it_first(page, tiny_address):
    open_page(page, tiny_address)
    ask(page, "first")
    wait_forwards(page, 3)
    ask(page, "second")
    page.wait_for_function(
        "window.marsPlayer.records[0]?.prompt.messages.at(-1).content == 'second'"
    )
    wait_forwards(page, 2)
    page.click("#stop")
    wait_state(page, "stopped")


def test_two_windows_have_their_own_runs(browser, page, tiny_address):
    other = browser.new_page()
    other.set_default_timeout(WAIT_MS)
    open_page(page, tiny_address)
    open_page(other, tiny_address)
    ask(page, "mine")
    wait_forwards(page, 3)
    ask(other, "theirs")
    wait_state(other, "waiting")
    page.click("#stop")
    wait_state(page, "stopped")
    # the model is free at once
    wait_forwards(other, 2)
    assert records(page)[0]["prompt"]["messages"][0]["content"] == "mine"
    assert records(other)[0]["prompt"]["messages"][0]["content"] == "theirs"
    other.close()


def test_closing_the_window_frees_the_model(browser, page):
    engine = ScriptedEngine([["a"]] * 100_000, pause=0.02)
    demo = serve(engine)
    leaving = browser.new_page()
    open_page(leaving, demo.local_url)
    ask(leaving, "leaving")
    wait_forwards(leaving, 2)
    leaving.close()
    open_page(page, demo.local_url)
    ask(page, "staying")
    wait_forwards(page, 1)
    assert engine.most_running == 1
    page.click("#stop")
    demo.close()


def test_an_empty_prompt_is_answered_with_a_sentence(page, tiny_address):
    open_page(page, tiny_address)
    ask(page, "   ")
    page.wait_for_selector(".mars-notice:not(:empty)")
    assert "Write a prompt first" in page.locator(".mars-notice").inner_text()
    wait_state(page, "empty")
    ask(page, "Hello.")
    wait_state(page, "running", "done")
    assert page.locator(".mars-notice").inner_text() == ""


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (0, "0", "Block size is 0: it must be a whole number from 1 to 64."),
        (0, "2.5", "Block size is 2.5"),
        (0, "", "Block size is missing"),
        (1, "-3", "Max new tokens is -3"),
    ],
)
def test_a_number_out_of_range_is_answered_with_a_sentence(page, tiny_address, field, value, words):
    open_page(page, tiny_address)
    number = page.locator("#sizes input").nth(field)
    usual = number.input_value()
    number.fill(value)
    ask(page, "Hello.")
    page.wait_for_function("document.querySelector('.mars-notice').textContent")
    assert words in page.locator(".mars-notice").inner_text()
    assert records(page) == []
    # nothing is lost: set right, the same prompt runs
    number.fill(usual)
    page.click("#generate")
    wait_forwards(page, 1)
    assert page.locator(".mars-notice").inner_text() == ""


def test_a_tau_typed_out_of_range_is_brought_into_it_everywhere(page, tiny_address):
    open_page(page, tiny_address)
    page.fill("#sizes input >> nth=1", "120")
    ask(page, "Hello.")
    wait_forwards(page, 3)
    number = page.locator("#tau input[type=number]")
    number.fill("")
    number.fill("5")
    number.press("Tab")
    page.wait_for_function("window.marsPlayer.records.some(r => r.type == 'control' && r.tau == 1)")
    page.wait_for_function("document.querySelector('#note').textContent.includes('Exact')")
    assert number.input_value() == "1"
    assert "Error" not in page.locator("#note").inner_text()


def test_a_prompt_is_never_executed(page, tiny_address):
    open_page(page, tiny_address)
    ask(page, PAYLOAD)
    wait_state(page, "running", "done")
    assert page.locator(".mars-asked").inner_text() == PAYLOAD
    assert page.locator("#injected, .mars img, .mars script").count() == 0


def test_model_text_is_never_executed(page):
    passes = [[PAYLOAD, " and", " more"], [PAYLOAD], ["${alert(1)}", "{{7*7}}", EOS]]
    demo = serve(ScriptedEngine(passes, disagree=frozenset({(1, 1)})))
    open_page(page, demo.local_url)
    ask(page, "Go.")
    wait_state(page, "done")
    text = page.locator(".mars-text").inner_text()
    assert text.count("<script>alert('script')</script>") == 2
    assert "{{7*7}}" in text
    assert "49" not in text
    page.hover(".mars-text .mars-word >> nth=0")
    assert page.locator(".mars-tip").is_visible()
    assert page.locator("#injected, .mars img, .mars script").count() == 0
    assert page.locator(".mars-text .mars-odd").all_inner_texts() == ["and"]
    demo.close()


def test_a_long_run_is_complete_also_after_a_gap(page, monkeypatch):
    monkeypatch.setattr(Transcript, "window", 3000)
    engine = ScriptedEngine([[" word", f" {i}"] for i in range(100)], pause=0.2)
    demo = serve(engine)
    open_page(page, demo.local_url)
    ask(page, "Go.")
    wait_forwards(page, 10)
    # as after a time in the background: the page has nothing of what came before
    page.evaluate("window.marsPlayer.reset()")
    engine.pause = 0.0  # slow until here, so that the run cannot end before the gap
    wait_state(page, "done")
    drawn = records(page)
    assert [r["forward"] for r in drawn if r["type"] == "step"] == list(range(1, 101))
    assert page.locator(".mars-text").inner_text() == drawn[-1]["text"]
    demo.close()


def test_newlines_spaces_and_special_tokens(page):
    passes = [
        ["One", ":", "\n", "\n"],
        ["\n", "\n"],
        ["\n", "  two"],
        ["\n", "    "],
        [" ", " "],
        ["x"],
        [" end", EOS],
    ]
    demo = serve(ScriptedEngine(passes))
    open_page(page, demo.local_url)
    ask(page, "Go.")
    wait_state(page, "done")
    runs = page.locator(".mars-text .mars-run")
    counts = page.locator(".mars-text .mars-count")
    assert counts.evaluate_all("n => n.map(x => x.dataset.count)") == ["4", "2", "2", "2", "2", "2"]
    # no newline is inside a tinted run, so no empty line is tinted
    assert not any("\n" in text for text in runs.evaluate_all("n => n.map(x => x.textContent)"))
    tints = runs.evaluate_all("n => n.map(x => x.dataset.tint)")
    assert all(a != b for a, b in pairwise(tints))
    assert page.locator(".mars-special").inner_text() == EOS
    demo.close()
