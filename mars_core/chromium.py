"""A real Chromium for what only a browser can do: pictures of the player, and the page's cost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mars_core.errors import MarsError

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    """The browser's path: CHROMIUM in the environment, else one on the PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser (Playwright's). Raises MarsError where there is none, or it fails."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise MarsError("Playwright is not installed (pip install playwright)") from None
    path = find_chromium()
    if path is None:
        raise MarsError("no Chromium found (PATH, or CHROMIUM=/path)")
    try:
        with sync_playwright() as driver:
            running = driver.chromium.launch(executable_path=path, args=list(FLAGS))
            yield running
            running.close()
    except Error as error:
        raise MarsError(f"the browser failed: {error.message.splitlines()[0]}") from None
