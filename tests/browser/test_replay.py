"""Replays: of a run in the player, of a race, and of the page that is exported."""

import io
import json
import subprocess
import sys

import pytest
from PIL import Image

from mars_core.export.page import replay_page
from mars_core.trace import dump_record
from tests.browser.harness import (
    PAYLOAD,
    ask,
    feed,
    fill,
    needs_chromium,
    open_page,
    open_player,
    records,
    serve,
    wait_state,
)
from tests.browser.test_player import drawn, said, trace_of
from tests.race.scripted import entrant, raced
from tests.ui.scripted import EOS, ScriptedEngine

pytestmark = needs_chromium

STORY = [["Once", " upon", " a"], [" time"], [" there", " was", " a", " fox", "."], [EOS]]
WORDS = [[word] for passes in STORY for word in passes]
STATIC = "http://127.0.0.1:9/recording"


def scrub(page, key, times=1, place=""):
    for _ in range(times):
        page.locator(f"{place} .mars-scrub").press(key)


def lines_of_race(**options):
    race = raced(
        entrant("AR", WORDS, ms=100.0), entrant("MARS", STORY, ms=120.0, **options), repeats=2
    )
    return "".join(dump_record(record) + "\n" for record in race)


def test_the_strip_is_there_when_a_run_is_over(page):
    open_player(page)
    assert page.locator(".mars-strip").is_hidden()
    feed(page, trace_of(STORY))
    wait_state(page, "done")
    assert page.locator(".mars-strip").is_visible()
    assert page.locator(".mars-time").inner_text() == "0.0 s / 0.0 s"


def test_scrubbing_by_forward_shows_what_was_there(page):
    """Back and forth; text, numbers and status are those of the time."""
    open_player(page)
    feed(page, trace_of(STORY))
    whole = drawn(page)
    seen = []
    for _ in range(4):
        scrub(page, "ArrowLeft")
        seen.append((drawn(page), page.locator(".mars-forwards dd").inner_text()))
    assert seen == [
        ("Once upon a time there was a fox.", "3"),
        ("Once upon a time", "2"),
        ("Once upon a", "1"),
        ("", "–"),
    ]
    scrub(page, "ArrowRight", 2)
    assert drawn(page) == "Once upon a time"
    assert page.locator(".mars-rate dd").first.inner_text() == "2.00"
    scrub(page, "ArrowRight", 9)
    assert drawn(page) == whole == "Once upon a time there was a fox."
    assert "4 forwards" in page.locator(".mars-status").inner_text()
    # what was said is what was said, wherever the replay stands
    scrub(page, "ArrowLeft", 3)
    assert page.evaluate("marsPlayer.history().at(-1).content") == whole
    assert len(records(page)) == len(trace_of(STORY).splitlines())


def test_marks_are_those_of_the_live_run(page):
    def marks():
        return page.evaluate(
            "[...document.querySelectorAll('.mars-text *')].map(n => [n.className, {...n.dataset}])"
        )

    open_player(page)
    feed(page, trace_of(STORY, disagree={(3, 2)}))
    live = marks()
    scrub(page, "ArrowLeft", 4)
    scrub(page, "ArrowRight", 4)
    assert marks() == live


def test_playing_takes_as_long_as_it_took(page):
    """Six seconds of decoding at 4x: between 1 and 3 seconds, and Pause stops it."""
    open_player(page)
    slow = [
        json.dumps({**json.loads(line), "ms": 1500.0}) if '"type":"step"' in line else line
        for line in trace_of(STORY).splitlines()
    ]
    feed(page, "".join(line + "\n" for line in slow))
    assert page.locator(".mars-time").inner_text() == "6.0 s / 6.0 s"
    page.locator(".mars-tempo").select_option("4")
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function("document.querySelector('.mars').dataset.forwards == '2'")
    page.get_by_role("button", name="Pause", exact=True).click()
    held = page.evaluate("marsPlayer.position")
    assert 3000 <= held < 6000
    page.wait_for_timeout(300)
    assert page.evaluate("marsPlayer.position") == held
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function("marsPlayer.position === marsPlayer.length")
    assert drawn(page) == "Once upon a time there was a fox."
    assert page.locator(".mars").get_attribute("data-playing") == "off"


def test_the_next_prompt_leaves_the_replay(page):
    """The answer that was being replayed is whole again before the next turn begins."""
    open_player(page)
    feed(page, trace_of(STORY, said("Go.")))
    scrub(page, "ArrowLeft", 3)
    answer = "Once upon a time there was a fox."
    feed(page, trace_of([["Yes", "."]], said("Go.", answer, "More?")))
    assert [drawn(page, 0), drawn(page, 1)] == [answer, "Yes."]
    assert page.evaluate("marsPlayer.history().map(m => m.content)") == [
        *("Go.", answer, "More?", "Yes.")
    ]


@pytest.fixture(scope="module")
def address():
    demo = serve(ScriptedEngine(STORY, pause=0.03))
    yield demo.local_url
    demo.close()


def test_a_race_on_the_page(page, address):
    """Lanes are measured, then replayed side by side, with a verdict."""
    open_page(page, address)
    page.fill("#prompt textarea", "Go.")
    page.click("#race")
    page.wait_for_selector('.mars-race[data-state="done"]')
    assert page.locator(".mars-lane h3").all_inner_texts() == ["AR", "MARS"]
    assert page.locator(".mars-race-question").inner_text() == "Go."
    assert "times as fast" in page.locator(".mars-says").inner_text()
    page.evaluate("marsStudio.race.seek(marsStudio.race.length)")
    texts = page.locator(".mars-lane .mars-text").all_inner_texts()
    assert len({text.replace("​", "").strip() for text in texts}) == 1
    # the prompt is still there, and the conversation is as it was
    assert page.locator("#prompt textarea").input_value() == "Go."
    page.get_by_role("button", name="Chat", exact=True).click()
    assert page.locator('[data-place="chat"]').get_attribute("data-state") == "empty"


def test_without_a_prompt_the_last_question_is_raced(page, address):
    open_page(page, address)
    page.click("#race")
    page.wait_for_function("document.querySelector('.mars-race-notice').textContent")
    assert "Write a prompt" in page.locator(".mars-race-notice").inner_text()
    ask(page, "Tell me.")
    page.wait_for_selector('[data-place="chat"][data-state="done"]')
    page.click("#race")
    page.wait_for_selector('.mars-race[data-state="done"]')
    assert page.locator(".mars-race-question").inner_text() == "Tell me."


def test_a_stopped_race_has_no_verdict(page):
    demo = serve(ScriptedEngine([["a"]] * 60, pause=0.05))
    try:
        open_page(page, demo.local_url)
        page.fill("#prompt textarea", "Go.")
        page.click("#race")
        page.wait_for_selector('.mars-lane[data-lane="now"]')
        page.click("#stop")
        page.wait_for_selector('.mars-race[data-state="stopped"]')
        assert "no verdict" in page.locator(".mars-race-status").inner_text()
        assert page.locator(".mars-verdict").count() == 0
    finally:
        demo.close()


def open_recording(page, text, name="recording.jsonl"):
    page.get_by_label("Recording to open").set_input_files(
        {"name": name, "mimeType": "application/jsonl", "buffer": text.encode()}
    )


def test_saved_and_opened_again(page, address, tmp_path):
    """A run and a race: what is opened is what was saved, byte for byte in its text."""
    open_page(page, address)
    ask(page, "Go.")
    page.wait_for_selector('[data-place="chat"][data-state="done"]')
    live = drawn(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save trace", exact=True).click()
    text = saved.value.path().read_text(encoding="utf-8")
    done = json.loads(text.splitlines()[-1])
    assert done["text"] == live

    page.reload()
    page.wait_for_function("window.marsStudio")
    open_recording(page, text)
    page.wait_for_selector('[data-place="chat"][data-state="done"]')
    assert drawn(page) == live
    assert page.evaluate("marsPlayer.records.map(r => JSON.stringify(r)).join('\\n')") == "\n".join(
        json.dumps(json.loads(line), separators=(",", ":"), ensure_ascii=False)
        for line in text.splitlines()
    )

    open_recording(page, lines_of_race())
    page.wait_for_selector('.mars-race[data-state="done"]')
    assert page.locator(".mars-lane").count() == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}\n", "line 1"),
        (lines_of_race().replace('"lane":1', '"lane":9'), "there is no lane 9"),
        ("", "empty"),
        (f'{{"type":"{PAYLOAD}"}}'.replace('onerror="', "").replace(')"', ")"), "line 1"),
    ],
)
def test_a_bad_recording_is_named_and_nothing_is_lost(page, address, text, words):
    open_page(page, address)
    ask(page, "Go.")
    page.wait_for_selector('[data-place="chat"][data-state="done"]')
    open_recording(page, text)
    page.wait_for_function("document.querySelector('.mars-notice').textContent")
    assert words in page.locator('[data-place="chat"] .mars-notice').inner_text()
    assert drawn(page) == "Once upon a time there was a fox."


def test_a_recording_that_was_cut_off(page, address):
    open_page(page, address)
    open_recording(page, "".join(line + "\n" for line in trace_of(STORY).splitlines()[:4]))
    page.wait_for_selector('[data-place="chat"][data-state="stopped"]')
    assert (
        "ends before its run did" in page.locator('[data-place="chat"] .mars-notice').inner_text()
    )
    scrub(page, "ArrowLeft", place='[data-place="chat"]')
    assert drawn(page) == "Once upon a"


def test_text_of_a_recording_is_never_run(page, address):
    open_page(page, address)
    wild = [[PAYLOAD], ["</script>", "\u2028"], [EOS]]
    open_recording(page, trace_of(wild, said(PAYLOAD)))
    page.wait_for_selector('[data-place="chat"][data-state="done"]')
    assert PAYLOAD in drawn(page)
    assert page.locator("#injected").count() == 0


def exported(page, label):
    page.locator(".mars-menu:visible summary").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name=label, exact=True).click()
    return saved.value.path().read_bytes()


def parts_of(page):
    """An exported page: what is before its recording, the records, and what is behind them."""
    head, mark, rest = page.partition('id="recording">')
    lines, end, tail = rest.partition("</script>")
    return head + mark, [json.loads(line) for line in lines.split("\n") if line], end + tail


def test_every_export_of_the_page(page, address):
    race = lines_of_race()
    open_page(page, address)
    open_recording(page, race)
    page.wait_for_selector('.mars-race[data-state="done"]')
    page.evaluate("marsStudio.race.seek(300)")
    # JavaScript writes 1.0 as 1
    assert parts_of(exported(page, "Web page").decode()) == parts_of(replay_page(race))
    assert exported(page, "Table of slots").startswith(b"lane,row,forward")
    with Image.open(io.BytesIO(exported(page, "Picture"))) as image:
        assert image.format == "PNG"
        assert len(set(image.convert("RGB").resize((80, 60)).getdata())) > 8
    for label, kind in (("Animation, WebP", "WEBP"), ("Animation, GIF", "GIF")):
        with Image.open(io.BytesIO(exported(page, label))) as image:
            assert image.format == kind
            assert image.n_frames == 11  # a second, and the end
    assert page.evaluate("marsStudio.race.position") == 300


def open_exported(page, text):
    document = replay_page(text)
    page.route(STATIC, lambda route: route.fulfill(body=document, content_type="text/html"))
    page.goto(STATIC)
    page.wait_for_function("window.marsReplay?.ready")


def test_an_exported_page_plays(page):
    open_exported(page, lines_of_race())
    page.evaluate("marsReplay.view.seek(marsReplay.view.length)")
    scrub(page, "ArrowLeft", 2)
    texts = page.locator(".mars-lane .mars-text").all_inner_texts()
    assert texts[0].strip().endswith("fox")
    assert page.locator(".mars-says").is_visible()
    page.get_by_role("radio", name="Confidence").check(force=True)
    assert page.locator("main").get_attribute("data-colour") == "confidence"
    page.locator(".mars-menu summary").click()
    assert page.locator(".mars-export").all_inner_texts() == ["Picture"]


def test_an_exported_run_has_nothing_to_ask(page):
    open_exported(page, trace_of([[PAYLOAD], [EOS]], said(PAYLOAD)))
    assert PAYLOAD in drawn(page)
    for name in ("Regenerate", "Edit", "New chat"):
        assert page.get_by_role("button", name=name, exact=True).count() == 0
    assert page.locator(".mars-facts").is_visible()


def test_pictures_from_the_command_line(tmp_path):
    """In processes of their own: two Playwrights in one do not get along."""
    source = tmp_path / "race.jsonl"
    source.write_text(lines_of_race(), encoding="utf-8")

    def export(name, *options):
        out = tmp_path / name
        command = [sys.executable, "-m", "mars_core.cli", "export", str(source), str(out), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return Image.open(out)

    def brightness(image):
        return image.convert("L").resize((1, 1)).getpixel((0, 0))

    with export("end.png", "--width", "800") as image:
        assert image.width == 800
        light = brightness(image)
    with export("all.webp", "--width", "600", "--dark", "--rate", "5") as image:
        assert image.n_frames == 6  # a second at 5 a second, and the end
        assert brightness(image) < 90 < 180 < light


def test_a_link_sets_the_page_up(page, address):
    open_page(page, f"{address}?prompt=Why%3F&tau=0.5&block_size=8")
    page.wait_for_function("document.querySelector('#prompt textarea')?.value == 'Why?'")
    assert page.locator("#tau input[type=number]").input_value() == "0.5"
    assert page.locator("#sizes input").first.input_value() == "8"
    assert page.locator('[data-place="chat"]').get_attribute("data-state") == "empty"


def test_a_copied_link_sets_another_page_up(page, address):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, address)
    page.fill("#prompt textarea", "Why & how?")
    page.locator("#tau input[type=number]").fill("0.35")
    page.locator("#sizes input").first.fill("6")
    page.locator("#batch > button").first.click()
    fill(page, "#prompts textarea", "")  # which a link cannot set: the page would refuse it
    page.click("#link")
    page.wait_for_function("document.querySelector('#link').textContent == 'Copied'")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == f"{address}?prompt=Why+%26+how%3F&tau=0.35&block_size=6"
    open_page(page, link)
    page.wait_for_function("document.querySelector('#prompt textarea')?.value == 'Why & how?'")
    assert page.locator("#tau input[type=number]").input_value() == "0.35"
    assert page.locator("#sizes input").first.input_value() == "6"
