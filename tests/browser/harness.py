"""Shared by the browser tests: a Chromium, pages that must stay clean, and two ways to a player.

`serve` starts the real page. `open_player` opens a page with nothing but the player's files, which
is fed literal traces: quick, and without a server.
"""

import json
import time

import pytest
from playwright.sync_api import sync_playwright

from mars_core.chromium import FLAGS, find_chromium
from mars_core.export.player import PLAYER_FILES, PLAYER_SHEETS, player_text
from mars_core.ui.demo import build_demo, launch
from tests.ui.scripted import ready

CHROMIUM = find_chromium()
WAIT_MS = 30_000
INSIDE = ("http://127.0.0.1:", "http://localhost:", "data:", "blob:")
# answered by the test itself; an origin of its own, so that there is storage and a clipboard
STATIC = "http://127.0.0.1:9/player"
# text that must be shown as it is, and never run
PAYLOAD = (
    "<img src=x onerror=\"alert('img')\"><script>alert('script')</script>"
    "${alert('template')}{{7*7}}<b id=injected>"
)

needs_chromium = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium found (PATH, or CHROMIUM=/path)"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """A page that collects what must never happen."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    opened.dialogs, opened.errors, opened.outside = [], [], []

    def on_dialog(dialog):
        opened.dialogs.append(dialog.message)
        dialog.dismiss()

    def on_request(request):
        if not request.url.startswith(INSIDE):
            opened.outside.append(request.url)

    opened.on("dialog", on_dialog)
    opened.on("request", on_request)
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    yield opened
    assert opened.dialogs == []
    assert opened.errors == []
    assert opened.outside == []
    context.close()


def serve(engine, switcher=None):
    """The real page for an engine."""
    demo = build_demo(ready(engine), switcher=switcher)
    launch(demo, "127.0.0.1", None)
    return demo


def open_page(page, address):
    page.goto(address)
    page.wait_for_function("window.marsPlayer")


def fill(page, selector, text):
    """Fill a box of the page, and again if it was still being set up and took its own text back."""
    box = page.locator(selector)
    for _ in range(10):
        box.fill(text)
        page.wait_for_timeout(100)
        if box.input_value() == text:
            return
    raise AssertionError(f"{selector} does not keep its text")


def open_player(page, *, files=PLAYER_FILES, options="{}", before="", dark=False):
    """The player alone; what its root dispatches is kept in `heard` as [name, detail].

    before: a script in the scope of the player's files, such as another createPlot.
    """
    document = f"""<!doctype html><meta charset="utf-8"><meta name="viewport"
      content="width=device-width"><style>{player_text(PLAYER_SHEETS)}
      body {{ margin: 0; padding: 16px; background: #faf9f6 }}
      .dark body {{ background: #121419; color-scheme: dark }}</style>
      <div class="root"></div>"""
    page.route(STATIC, lambda route: route.fulfill(body=document, content_type="text/html"))
    page.goto(STATIC)
    page.evaluate(
        f"""() => {{
          document.documentElement.classList.toggle("dark", {json.dumps(dark)});
          const root = document.querySelector(".root");
          window.heard = [];
          for (const name of ["state", "gap", "again", "edit", "over"])
            root.addEventListener(`mars-${{name}}`, (e) => heard.push([name, e.detail]));
          {before}
          {player_text(files)}
          window.marsPlayer = createPlayer(root, {options});
        }}"""
    )


def feed(page, text):
    page.evaluate("text => window.marsPlayer.feed(text)", text)


def records(page):
    return page.evaluate("window.marsPlayer.records")


def wait_state(page, *states):
    selector = ", ".join(f'.mars[data-state="{state}"]' for state in states)
    page.wait_for_selector(selector)


def wait_forwards(page, count):
    page.wait_for_function(
        f"window.marsPlayer.records.filter(r => r.type == 'step').length >= {count}"
    )


def ask(page, prompt):
    page.fill("#prompt textarea", prompt)
    page.click("#generate")


class Paced:
    """An engine slowed down, so that there is time to move tau while it runs."""

    def __init__(self, engine, seconds=0.06):
        self.engine = engine
        self.loaded = engine.loaded
        self.encode = engine.encode
        self.seconds = seconds

    def generate(self, messages, config, control=None):
        for record in self.engine.generate(messages, config, control):
            time.sleep(self.seconds)
            yield record
