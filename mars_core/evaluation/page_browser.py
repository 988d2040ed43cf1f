"""The page in a real Chromium, driven by Playwright, which only the dev extra installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mars_core.chromium import chromium
from mars_core.errors import MarsError
from mars_core.evaluation.page_client import Run, parse_done
from mars_core.race.records import Race, read_race

SETTLE_MS = 1000  # Gradio goes on building a page that can already be used
STALLED_MS = 60_000  # without a new record, a run is given up

# Asks, waits without polling, and takes the time, all inside of the browser, so that Playwright
# adds nothing. Long tasks are reported some time after they ended.
ASK = """({ button, part, stalled }) => new Promise((resolve) => {
  let longest = 0;
  let seen = -1;
  const notice = document.querySelector(".mars-notice");
  const tasks = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
  });
  const alive = setInterval(() => {
    const count = marsStudio[part].records.length;
    if (count === seen) end("stalled");
    seen = count;
  }, stalled);
  const listen = ({ detail }) => {
    if (!["waiting", "empty", "running"].includes(detail)) end(detail);
  };
  const refused = new MutationObserver(() => notice.textContent && end("refused"));
  const end = (state) => {
    const seconds = (performance.now() - started) / 1000;
    document.removeEventListener("mars-state", listen);
    clearInterval(alive);
    refused.disconnect();
    setTimeout(() => {
      tasks.disconnect();
      const lines = marsStudio[part].records.map((record) => JSON.stringify(record));
      resolve({ seconds, longest, state, notice: notice.textContent, lines });
    }, 500);
  };
  tasks.observe({ entryTypes: ["longtask"] });
  refused.observe(notice, { childList: true });
  document.addEventListener("mars-state", listen);
  const started = performance.now();
  document.querySelector(button).click();
})"""


@dataclass(frozen=True, slots=True)
class Browser:
    """The page, open in a browser; its default settings but for what methods are given."""

    name: str
    _page: Any

    def run(self, prompt: str, new_tokens: int) -> Run:
        """A run, and how long it took for whoever sits in front of it."""
        answer = self._ask("#generate", "player", prompt, new_tokens)
        done = parse_done(answer["lines"][-1])
        return Run(self.name, answer["seconds"], done, longest_task_ms=float(answer["longest"]))

    def race(self, prompt: str, new_tokens: int) -> Race:
        """A race in which every lane is measured once, as recorded."""
        self._page.locator("#lanes > button").click()
        self._page.get_by_label("Repeats").fill("1")
        answer = self._ask("#race", "race", prompt, new_tokens)
        return read_race("\n".join(answer["lines"]).encode("utf-8"))

    def _ask(self, button: str, part: str, prompt: str, new_tokens: int) -> dict[str, Any]:
        self._page.get_by_label("Max tokens").fill(str(new_tokens))
        self._page.fill("#prompt textarea", prompt)
        how = {"button": button, "part": part, "stalled": STALLED_MS}
        answer: dict[str, Any] = self._page.evaluate(ASK, how)
        if answer["state"] != "done":
            said = answer["notice"] or answer["state"]
            raise MarsError(f"the run in the browser did not end well: {said}")
        return answer


@contextmanager
def browser(address: str) -> Iterator[Browser]:
    """A Chromium with the page open.

    Raises MarsError where there is no browser, no Playwright, or the page fails.
    """
    with chromium() as running:
        page = running.new_page(viewport={"width": 1280, "height": 720})
        page.goto(address)
        page.wait_for_function("window.marsPlayer")
        page.wait_for_timeout(SETTLE_MS)
        yield Browser(f"Chromium {running.version.partition('.')[0]}", page)
