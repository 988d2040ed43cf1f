"""Try the Space as Hugging Face runs it, before it is pushed.

    python spaces/check.py [--shots FOLDER] [--work FOLDER]

Builds the folder, makes a fresh virtual environment with nothing but what a Space installs, starts
the program there with a Space's environment and no model on the disk, and watches a browser and
twenty clients use it. Run it with the project's own environment (`pip install -e ".[dev]"`); about
ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from build import ROOT, build, front_matter

sys.path.insert(0, str(ROOT))

from gradio_client import Client
from gradio_client.exceptions import AppError

from mars_core.chromium import chromium
from mars_core.trace import DoneRecord, Header, StepRecord, parse_record

VISITORS = 20
TAUS = (0.5, 0.8, 0.9, 1.0)
TOKENS = 16
START_SECONDS = 120
LOAD_SECONDS = 900
RUN_SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--shots", type=Path, help="folder for pictures of the page")
    parser.add_argument("--work", type=Path, help="folder that is kept, to try again sooner")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mars-space-") as folder:
        work = args.work or Path(folder)
        build(work / "app")
        python = environment(work)
        with running(work, python) as address:
            say(f"open at {address}")
            with chromium() as browser:
                look(browser, address, args.shots)
            refused(address)
            crowd(address)
    say("all well")
    return 0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def environment(work: Path) -> Path:
    """A virtual environment as a Space's build makes it, unless there is one; its Python."""
    if (python := work / "venv" / "bin" / "python").exists():
        return python
    subprocess.run([base_python(), "-m", "venv", work / "venv"], check=True)
    card = front_matter((work / "app" / "README.md").read_text(encoding="utf-8"))
    wanted = ["-r", work / "app" / "requirements.txt"]
    wanted += [f"gradio[oauth,mcp]=={card['sdk_version']}", "spaces"]
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
    say(f"installed for {version.stdout.strip()}")
    return python


def base_python() -> str:
    """A Space's Python 3.12 if it is here and works, else this one."""
    found = shutil.which("python3.12")
    if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
        return found
    return sys.executable


@contextmanager
def running(work: Path, python: Path) -> Iterator[str]:
    """The program in its folder, with a Space's variables and an empty home; its address."""
    home = work / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    space = {
        "HOME": str(home),
        "SYSTEM": "spaces",
        "SPACE_ID": "somebody/mars-studio",
        "SPACE_AUTHOR_NAME": "somebody",
        "SPACE_REPO_NAME": "mars-studio",
        "GRADIO_SERVER_PORT": "7860",
        "PYTHONUNBUFFERED": "1",
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MARS_", "VIRTUAL_ENV"))}
    process = subprocess.Popen(
        [python, "app.py"],
        cwd=work / "app",
        env={**kept, **space},
        stderr=subprocess.PIPE,
        text=True,
    )
    told: list[str] = []
    threading.Thread(target=lambda: told.extend(process.stderr or ()), daemon=True).start()
    try:
        yield until(lambda: address_in(told, process), START_SECONDS, "the page to open")
    except BaseException:
        print("".join(told[-20:]), file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(30)


def address_in(told: list[str], process: subprocess.Popen[str]) -> str | None:
    if process.poll() is not None:
        raise SystemExit(f"app.py ended with {process.returncode}")
    found = re.search(r"MARS Studio: http://[^/]*:(\d+)/", "".join(told))
    return f"http://127.0.0.1:{found[1]}/" if found else None


def until(look: Any, seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
        time.sleep(0.2)
    raise SystemExit(f"waited {seconds:g} s for {what}")


HEAD = "document.querySelector('.studio-head p').textContent"
PROMPT = "How many days does a week have?"
ANSWERED = """(prompt) => document.body.dataset.mars === "done" &&
  document.querySelector(".mars-root").textContent.includes(prompt)"""
VIEWS = (("dark", 1280, "dark"), ("narrow", 420, "light"), ("narrow-dark", 420, "dark"))


def look(browser: Any, address: str, shots: Path | None) -> None:
    """What a first visitor sees: a recording while the model comes, how far it is, then a run."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    page.wait_for_function("window.marsPlayer")
    assert page.locator(".mars-root").inner_text().strip(), "no recording is shown"
    page.wait_for_function(f"{HEAD}.includes('%')", timeout=LOAD_SECONDS * 1000)
    say(page.evaluate(HEAD))
    shoot(page, shots, "loading")
    page.wait_for_function(f"{HEAD}.includes('MARS-trained')", timeout=LOAD_SECONDS * 1000)
    say(page.evaluate(HEAD))
    assert page.locator("#load-model").count() == 0, "a visitor could load another model"
    page.locator("#prompt textarea").fill(PROMPT)
    page.locator("#prompt textarea").press("Enter")
    page.wait_for_function(ANSWERED, arg=PROMPT, timeout=RUN_SECONDS * 1000)
    shoot(page, shots, "run")
    for name, width, theme in VIEWS:
        other = browser.new_page(viewport={"width": width, "height": 900})
        other.goto(f"{address}?__theme={theme}")
        other.wait_for_function("window.marsPlayer")
        other.wait_for_timeout(1500)
        shoot(other, shots, name)


def shoot(page: Any, shots: Path | None, name: str) -> None:
    if shots is not None:
        shots.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=shots / f"{name}.png")


def refused(address: str) -> None:
    """What is too much is refused in a sentence."""
    client = Client(address, verbose=False)
    try:
        client.predict("Why?", max_new_tokens=5000, api_name="/generate")
    except AppError as error:
        say(f"refused: {error}")
    else:
        raise SystemExit("5,000 tokens were not refused")


def crowd(address: str) -> None:
    """Many visitors at once: all are answered, each their own prompt at their own tau."""
    together = threading.Barrier(VISITORS)
    answers: dict[int, str] = {}
    seconds: dict[int, float] = {}

    def visit(index: int) -> None:
        client = Client(address, verbose=False)
        together.wait()
        began = time.monotonic()
        answers[index] = client.predict(
            f"What is {index} plus 1?",
            tau=TAUS[index % len(TAUS)],
            max_new_tokens=TOKENS,
            api_name="/generate",
        )
        seconds[index] = time.monotonic() - began

    threads = [threading.Thread(target=visit, args=(index,)) for index in range(VISITORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(RUN_SECONDS)
    assert len(answers) == VISITORS, f"{len(answers)} of {VISITORS} were answered"
    for index, answer in answers.items():
        records = [parse_record(line) for line in answer.splitlines()]
        (header,) = [record for record in records if isinstance(record, Header)]
        assert header.prompt is not None
        assert header.prompt.messages[-1].content == f"What is {index} plus 1?"
        taus = {record.tau for record in records if isinstance(record, StepRecord)}
        assert taus == {TAUS[index % len(TAUS)]}, taus
        assert isinstance(records[-1], DoneRecord)
    waits = sorted(seconds.values())
    say(
        f"{VISITORS} visitors at once, {TOKENS} tokens each: all answered, the first after "
        f"{waits[0]:.1f} s, the last after {waits[-1]:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
