"""The page before its model is there: a recording to look at, and how far the model is."""

import threading
from concurrent.futures import Future

import pytest

from mars_core.export.recording import shipped_recordings
from mars_core.models.progress import LatestProgress
from mars_core.ui.demo import build_demo, launch
from tests.browser.harness import ask, fill, needs_chromium, open_page, wait_state
from tests.ui.scripted import EOS, ScriptedEngine

pytestmark = needs_chromium
HEAD = "document.querySelector('.studio-head p').textContent"


@pytest.fixture
def coming():
    """A page whose model is on its way: its future, its progress, its address."""
    engine, loading = Future(), LatestProgress()
    recording = next(iter(shipped_recordings().values()))
    demo = build_demo(engine, "small", recording, loading=loading)
    yield engine, loading, launch(demo, "127.0.0.1", None)
    demo.close()


def scripted(pause=0.05):
    return ScriptedEngine([["Hello", " you"], [".", EOS]], pause=pause)


def test_progress_is_shown_until_the_model_is_there(page, coming):
    engine, loading, address = coming
    open_page(page, address)
    assert "Mia buys" in page.locator(".mars-root").inner_text()
    loading("download", 3, 10)
    page.wait_for_function(f"{HEAD} === 'small · downloading 30% …'")
    loading("convert", 1, 2)
    page.wait_for_function(f"{HEAD} === 'small · converting (once) 50% …'")
    fill(page, "#prompt textarea", "Who are you?")
    page.click("#generate")  # waits for the model
    wait_state(page, "waiting")
    engine.set_result(scripted())
    page.wait_for_function(f"{HEAD}.includes('not MARS-trained')")
    wait_state(page, "done")
    assert "Hello you." in page.locator(".mars-root").inner_text()


def test_a_narrow_page_stays_at_its_head_until_something_is_asked(page, coming):
    engine, _, address = coming
    engine.set_result(scripted(pause=0.5))
    page.set_viewport_size({"width": 420, "height": 800})
    open_page(page, address)
    page.wait_for_function("document.body.dataset.mars === 'done'")  # the recording was played
    assert page.evaluate("window.scrollY") == 0
    ask(page, "Who are you?")
    # Not its state: "done" is still the recording's until the run's first record comes.
    page.wait_for_selector(".mars-root >> text=Hello you.")
    assert page.evaluate("window.scrollY") > 100


def test_many_pages_wait_for_it_at_once(browser, coming):
    engine, loading, address = coming
    pages = [browser.new_page() for _ in range(6)]
    for one in pages:
        one.goto(address)
    loading("load", 1, 4)
    for one in pages:
        one.wait_for_function(f"{HEAD} === 'small · loading 25% …'")
    threading.Timer(0.2, engine.set_result, [scripted()]).start()
    for one in pages:
        one.wait_for_function(f"{HEAD}.includes('not MARS-trained')")
        one.close()
