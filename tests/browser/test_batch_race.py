"""Batches on the page: rows against each other, waiting to be seen, the same after a replay."""

from itertools import pairwise

import pytest
import torch

from mars_core.engine import Engine
from mars_core.models.load import load
from mars_core.race.lanes import Racer
from tests.browser.harness import fill, needs_chromium, open_page, serve
from tests.tiny import tiny_checkpoint, tiny_llama

pytestmark = needs_chromium

PROMPTS = ["Tell me of the sea.", "Why?", "<b>One</b>, two", "the other", "and on"]


class Batches:
    """A real tiny engine, as the page has it."""

    def __init__(self, engine):
        self.loaded, self.encode, self.generate = engine.loaded, engine.encode, engine.generate
        self.race, self.batches = (racer := Racer(engine, lambda: engine)).race, racer.batches


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6, dtype=torch.float32)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"), model, mask=True)
    demo = serve(Batches(Engine(load(str(folder), device="cpu", dtype="float32"))))
    yield demo.local_url
    demo.close()


def race(page, address, rows="2"):
    open_page(page, address)
    page.locator("#batch > button").first.click()
    fill(page, "#prompts textarea", "\n".join(PROMPTS))
    page.get_by_label("Prompts at once").fill(rows)
    page.get_by_label("Tokens per cache block").fill("4")
    page.get_by_label("Max tokens").fill("12")
    page.locator("#tau input[type=number]").fill("0.7")
    page.keyboard.press("Tab")
    page.click("#race-batches")
    page.wait_for_selector('.mars-race[data-state="done"]')


def boxes(page, lane):
    """Of a lane: class, line, start and length of each box."""
    return (
        page.locator(".mars-batch-lane")
        .nth(lane)
        .evaluate(
            """(lane) => [...lane.querySelectorAll(".mars-rows rect[class]")].map((box) =>
          [box.getAttribute("class"), ...["y", "x", "width"].map((n) => +box.getAttribute(n))])"""
        )
    )


def test_rows_waiting_and_ends_are_drawn(page, address):
    race(page, address)
    names = page.locator(".mars-lane h3").all_inner_texts()
    assert names == ["AR", "MARS, block cache of 4", "MARS, cursor cache"]
    assert page.locator(".mars-race-question").inner_text() == "5 prompts, 2 at once"
    kinds = [{box[0] for box in boxes(page, lane)} for lane in range(3)]
    assert kinds == [
        {"mars-box-step"},
        {"mars-box-step", "mars-box-idle", "mars-box-extend"},
        {"mars-box-step"},
    ]
    for lane in range(3):
        drawn = boxes(page, lane)
        assert len({line for _, line, *_ in drawn}) == 2
        for line in {line for _, line, *_ in drawn}:  # of one line, boxes do not overlap
            spans = sorted((x, width) for _, y, x, width in drawn if y == line)
            for (x, width), (following, _) in pairwise(spans):
                assert x + width <= following + 1e-6
        assert page.locator(".mars-batch-lane").nth(lane).locator(".mars-rows line").count() == 5


def test_figures_are_those_of_the_verdict(page, address):
    race(page, address)
    page.evaluate("marsStudio.race.seek(marsStudio.race.length)")
    verdict = page.evaluate("marsStudio.race.records.at(-1)")
    for lane, result in enumerate(verdict["lanes"]):
        numbers = page.locator(".mars-batch-lane").nth(lane).locator("dd")
        seconds, _, rate, idle = numbers.all_inner_texts()[:4]
        assert float(seconds) == pytest.approx(result["seconds"], abs=0.006)
        assert float(rate) == pytest.approx(result["tokens_per_forward"], abs=0.006)
        assert float(idle.rstrip(" %")) == pytest.approx(100 * result["idle"], abs=0.6)
    cells = page.locator(".mars-table th").all_inner_texts()
    assert "idle" in cells


def test_a_replay_shows_what_there_was(page, address):
    race(page, address)
    page.evaluate("marsStudio.race.seek(marsStudio.race.length / 3)")
    third = page.locator(".mars-batch-lane").nth(1).locator("dd").all_inner_texts()
    page.evaluate("marsStudio.race.seek(marsStudio.race.length)")
    whole = page.locator(".mars-batch-lane").nth(1).locator("dd").all_inner_texts()
    assert float(third[0]) < float(whole[0])


def test_answers_are_told_as_text(page, address):
    race(page, address)
    lane = page.locator(".mars-batch-lane").first
    lane.locator("summary").click()
    assert lane.locator(".mars-answers dt").all_inner_texts() == PROMPTS
    answers = page.evaluate(
        """() => marsStudio.race.records.filter(({ type }) => type === "done").slice(0, 5)
          .sort((a, b) => a.row - b.row).map(({ text }) => text)"""
    )
    shown = lane.locator(".mars-answers dd").evaluate_all("all => all.map((n) => n.textContent)")
    assert [text.rstrip("�") for text in shown] == [text.rstrip("�") for text in answers]
    assert page.locator(".mars-answers b").count() == 0


def test_a_race_after_a_race_of_batches_has_lanes_of_text(page, address):
    race(page, address)
    page.fill("#prompt textarea", "Go.")
    page.click("#race")
    page.wait_for_selector('.mars-race[data-batch="off"][data-state="done"]')
    assert page.locator(".mars-batch-lane").count() == 0
    assert page.locator(".mars-lane .mars-text").count() == 3


def test_bad_input_is_a_sentence(page, address):
    open_page(page, address)
    page.locator("#batch > button").first.click()
    fill(page, "#prompts textarea", "  ")
    page.click("#race-batches")
    page.wait_for_function("document.querySelector('.mars-race-notice').textContent")
    assert "one a line" in page.locator(".mars-race-notice").inner_text()
