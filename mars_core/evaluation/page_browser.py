"""The page in a real Chromium, driven by Playwright, which only the dev extra installs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mars_core.chromium import chromium
from mars_core.errors import MarsError
from mars_core.evaluation.page_client import Run, parse_done

SETTLE_MS = 1000  # Gradio goes on building a page that can already be used
STALLED_MS = 60_000  # without a new record, a run is given up

# Asks, waits without polling, and takes the time, all inside of the browser, so that Playwright
# adds nothing. Long tasks are reported some time after they ended.
ASK = """(stalled) => new Promise((resolve) => {
  let longest = 0;
  let seen = -1;
  const notice = document.querySelector(".mars-notice");
  const tasks = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
  });
  const alive = setInterval(() => {
    const count = marsPlayer.records.length;
    if (count === seen) end("stalled");
    seen = count;
  }, stalled);
  const listen = ({ detail }) => {
    if (detail !== "waiting" && detail !== "running") end(detail);
  };
  const refused = new MutationObserver(() => notice.textContent && end("refused"));
  const end = (state) => {
    const seconds = (performance.now() - started) / 1000;
    document.removeEventListener("mars-state", listen);
    clearInterval(alive);
    refused.disconnect();
    setTimeout(() => {
      tasks.disconnect();
      const last = JSON.stringify(marsPlayer.records.at(-1));
      resolve({ seconds, longest, state, notice: notice.textContent, last });
    }, 500);
  };
  tasks.observe({ entryTypes: ["longtask"] });
  refused.observe(notice, { childList: true });
  document.addEventListener("mars-state", listen);
  const started = performance.now();
  document.querySelector("#generate").click();
})"""


@contextmanager
def browser(address: str) -> Iterator[Callable[[str, int], Run]]:
    """A Chromium with the page open, to be called with a prompt and the number of tokens.

    Raises MarsError where there is no browser, no Playwright, or the page fails.
    """
    with chromium() as running:
        page = running.new_page(viewport={"width": 1280, "height": 720})
        page.goto(address)
        page.wait_for_function("window.marsPlayer")
        page.wait_for_timeout(SETTLE_MS)
        yield partial(_ask, f"Chromium {running.version.partition('.')[0]}", page)


def _ask(reader: str, page: Any, prompt: str, new_tokens: int) -> Run:
    """Ask with the page's default settings but for the number of tokens."""
    page.get_by_label("Max tokens").fill(str(new_tokens))
    page.fill("#prompt textarea", prompt)
    answer = page.evaluate(ASK, STALLED_MS)
    if answer["state"] != "done":
        said = answer["notice"] or answer["state"]
        raise MarsError(f"the run in the browser did not end well: {said}")
    done = parse_done(answer["last"])
    return Run(reader, answer["seconds"], done, longest_task_ms=float(answer["longest"]))
