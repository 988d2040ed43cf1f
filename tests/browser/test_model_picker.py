"""Another model is chosen on the page, while it stays open."""

import pytest

from mars_core.config import LoadConfig
from mars_core.model_thread import ModelThread, ThreadedEngine
from mars_core.models.load import load_as
from mars_core.switching import Switcher, open_for_page
from tests.browser.harness import fill, needs_chromium, open_page, records, serve, wait_state
from tests.tiny import tiny_checkpoint, tiny_qwen2, torch

pytestmark = needs_chromium


@pytest.fixture
def folders(tmp_path):
    first = tiny_checkpoint(tmp_path / "first", mask=True)
    second = tiny_checkpoint(tmp_path / "second", tiny_qwen2(dtype=torch.float32), mask=True)
    return str(first), str(second)


@pytest.fixture
def address(folders):
    base = LoadConfig(folders[0], device="cpu", dtype="float32", packing=False)
    thread = ModelThread()
    engine = ThreadedEngine(*open_for_page(base, load_as), thread)
    demo = serve(engine, Switcher(thread, base))
    yield demo.local_url
    demo.close()


def choose(page, name):
    page.locator("#model input").first.fill(name)
    page.keyboard.press("Enter")


def says(page, words):
    page.wait_for_function(
        "words => document.querySelector('#choice').textContent.includes(words)",
        arg=words,
        timeout=120_000,  # the first quantised model also brings bitsandbytes in
    )


def head_has(page, words):
    page.wait_for_function(
        "words => document.querySelector('.studio-head p').textContent.includes(words)", arg=words
    )


def ask(page):
    fill(page, "#prompt textarea", "Hello!")
    page.get_by_label("Max tokens").fill("4")
    page.click("#generate")
    page.wait_for_function("window.marsPlayer.records.some(({ type }) => type === 'done')")
    wait_state(page, "done")
    return records(page)[0]["model"]["name"]


def open_choice(page, address):
    open_page(page, address)
    page.locator("#model > button").click()
    says(page, "kB per token")  # which is told after the choice was set


def test_another_model_and_one_that_cannot_be_had(page, address, folders):
    open_choice(page, address)
    head_has(page, "first · MARS-trained")
    choose(page, "nosuch")
    says(page, "Unknown model")
    page.click("#load-model")
    page.wait_for_timeout(500)
    says(page, "Unknown model")
    head_has(page, "first · MARS-trained")

    choose(page, folders[1])
    says(page, "float32: ")
    says(page, " free.")
    page.click("#load-model")
    says(page, "is loaded")
    head_has(page, "second · MARS-trained")
    assert ask(page) == "second"


def test_whoever_comes_later_sees_the_model_that_is_there(page, address, folders):
    open_choice(page, address)
    choose(page, folders[1])
    says(page, " MB for ")
    page.locator("#model").get_by_label("Weights").click()
    page.get_by_role("option", name="4 bits (NF4)").click()
    says(page, "nf4, float32: ")
    page.click("#load-model")
    says(page, "is loaded")
    head_has(page, "nf4 weights")
    open_choice(page, address)
    assert page.locator("#model input").nth(1).input_value() == "4 bits (NF4)"
    head_has(page, "second · ")


def test_every_model_says_its_licence(page, address):
    open_choice(page, address)
    page.locator("#model input").first.click()
    options = page.get_by_role("option").all_inner_texts()
    assert any("smollm2-135m · Apache-2.0" in option for option in options)
    mars = [option for option in options if "mars-qwen2.5" in option]
    assert len(mars) == 8
    assert all("licence unknown" in option for option in mars)
