"""The confidence plot in a real Chromium, fed with records written here."""

from itertools import pairwise

import pytest

from mars_core.trace import DraftRecord, TokenRecord
from mars_core.ui.plots import confidence_figure
from tests.browser.harness import needs_chromium
from tests.browser.plot_page import (
    ACCEPTED,
    BARS,
    CHART,
    DOTS,
    REJECTED,
    SCROLL,
    WORDS,
    add,
    boxes,
    fills,
    ink,
    middle,
    mount,
    move,
    open_sheet,
    plain,
    point_at,
    settled,
    show,
    shown,
    step,
    trace,
)

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def sheet(browser):
    return open_sheet(browser)


@pytest.fixture
def page(sheet):
    """A new plot on the one page of this module: Plotly is large, and loaded once."""
    sheet.wrong.clear()
    sheet.mouse.move(1, 1)
    mount(sheet)
    yield sheet
    assert sheet.wrong == []


def test_every_slot_of_every_forward_accepted_filled_and_rejected_hollow(page):
    show(
        page,
        [
            step(1, [0.99, 0.95, 0.4, 0.7], 2),
            step(2, [0.5, 0.2, 0.3, 0.1], 1),
            step(3, [1.0, 1.0, 1.0, 1.0], 4),
        ],
    )
    accepted, rejected = trace(page, "accepted"), trace(page, "rejected")
    place = [(forward, slot, y) for forward, slot, _, y in accepted["customdata"]]
    assert place == [(1, 0, 0.99), (1, 1, 0.95), (2, 0, 0.5), *((3, i, 1.0) for i in range(4))]
    place = [(forward, slot, y) for forward, slot, _, y in rejected["customdata"]]
    assert place == [(1, 2, 0.4), (1, 3, 0.7), (2, 1, 0.2), (2, 2, 0.3), (2, 3, 0.1)]
    assert accepted["y"] == [y for *_, y in accepted["customdata"]]
    assert [accepted["marker"]["symbol"], rejected["marker"]["symbol"]] == ["circle", "circle-open"]
    # what is on the screen: tints as in the text, one-token passes in quiet ink, hollow unfilled
    dots = fills(page, DOTS)
    assert dots[:5] == ["none"] * 5
    assert dots[5:] == [ink(page, "edge-0")] * 2 + [ink(page, "mute")] + [ink(page, "edge-1")] * 4


def test_a_draft_is_filled_in_the_colour_of_its_text_once_it_is_kept(page):
    show(page, [step(1, [0.9, 0.8, 0.7, 0.6], mode="verified")])
    assert trace(page, "accepted")["y"] == [0.9]
    drafts = [
        DraftRecord(id=7, text="a", verdict=verdict, origin={"forward": 1, "slot": slot})
        for slot, verdict in enumerate(("kept", "rejected", "unreached"), start=1)
    ]
    kept = TokenRecord(id=7, text="a", source="draft", slot=0)
    second = step(2, [0.5, 0.4], mode="verified")
    tokens = (kept, *second.tokens)
    add(page, [second.model_copy(update={"drafts": tuple(drafts), "tokens": tokens})])
    shown(page, 2)
    accepted = [tuple(data[:2]) for data in trace(page, "accepted")["customdata"]]
    rejected = [tuple(data[:2]) for data in trace(page, "rejected")["customdata"]]
    assert (accepted, rejected) == ([(1, 0), (1, 1), (2, 0)], [(1, 2), (1, 3), (2, 1)])
    assert fills(page, ACCEPTED) == [ink(page, "mute"), *[ink(page, "edge-0")] * 2]


def test_slots_of_a_forward_never_overlap_nor_do_forwards(page):
    show(page, [step(n, [0.9] * 4, 4) for n in (1, 2, 3)])
    dots = sorted(boxes(page, DOTS), key=lambda box: box["x"])
    assert all(a["right"] <= b["x"] + 0.1 for a, b in pairwise(dots))
    for forward, bar in enumerate(boxes(page, BARS)):
        own = dots[4 * forward : 4 * forward + 4]
        assert middle(bar)[0] == pytest.approx((own[0]["x"] + own[-1]["right"]) / 2, abs=0.5)


def test_tau_is_a_step_line_as_it_was_and_absent_in_one_token_mode(page):
    show(page, [*plain(1, 2), *plain(3, 3, tau=0.4), *plain(4, 5, 1, mode="one"), *plain(6, 6)])
    line = trace(page, "tau")
    assert line["x"] == [0.5, 1.5, 1.5, 2.5, 2.5, 3.5, 3.5, 4.5, 4.5, 5.5, 5.5, 6.5]
    assert line["y"] == [0.9, 0.9, 0.9, 0.9, 0.4, 0.4, None, None, None, None, 0.9, 0.9]


def test_bars_are_tokens_per_forward(page):
    show(page, [step(1, [0.9] * 4, 3), step(2, [0.9] * 4, 1), step(3, [0.9] * 4, 4)])
    assert trace(page, "tokens")["y"] == [3, 1, 4]
    bars = boxes(page, BARS)
    high = [bar["height"] for bar in bars]
    assert [h / high[1] for h in high] == pytest.approx([3, 1, 4], abs=0.2)
    assert fills(page, BARS) == [ink(page, "edge-0"), ink(page, "mute"), ink(page, "edge-1")]
    # in a strip of their own: above every dot
    assert max(bar["bottom"] for bar in bars) < min(d["y"] for d in boxes(page, DOTS))


def test_moves_of_tau_are_marked_and_their_words_cover_nothing(page):
    page.evaluate("plot.add({ type: 'header', settings: { mode: 'tau', tau: 0.95 } })")
    show(
        page,
        [
            move(1, 0.9), *plain(1, 9),
            move(10, 0.8), *plain(10, 10), move(11, 0.7), *plain(11, 11), move(12, 0.5),
            *plain(12, 19, tau=0.5), move(20, 0.5, "one"), *plain(20, 24, mode="one"),
        ],
    )  # fmt: skip
    lines = page.evaluate(f"{CHART}.layout.shapes.map(({{ x0, x1 }}) => [x0, x1])")
    assert lines == [[x, x] for x in (0.5, 9.5, 10.5, 11.5, 19.5)]
    texts = page.locator(f".mars-plot-chart {WORDS}")
    # of a slider dragged along, one label from where it began to where it ended
    assert texts.all_text_contents() == ["0.95 → 0.9", "0.9 → 0.5", "0.5 → one token"]
    labels = boxes(page, WORDS)
    assert all(a["right"] < b["x"] for a, b in pairwise(labels))
    marks = boxes(page, DOTS) + boxes(page, BARS)
    assert max(label["bottom"] for label in labels) <= min(mark["y"] for mark in marks) + 1


def test_the_last_label_has_room_where_the_run_ends(page):
    show(page, [*plain(1, 99), move(100, 0.5), *plain(100, 100)])
    (label,) = boxes(page, WORDS)
    assert label["right"] <= page.locator(".mars-plot-chart").bounding_box()["width"] + 20


def test_hovering_a_dot_or_a_bar_says_which_and_where(page):
    show(page, [*plain(1, 6), step(7, [0.95, 0.5, 0.3, 0.1], 1), *plain(8, 9)])
    dot = boxes(page, REJECTED)[trace(page, "rejected")["y"].index(0.3)]
    hit = point_at(page, dot)
    assert (hit["forward"], hit["slot"]) == (7, 2)
    assert middle(hit["rect"]) == pytest.approx(middle(dot), abs=1)
    assert page.locator(".mars-plot-chart .hoverlayer").text_content() == ""
    page.mouse.click(*middle(dot))
    assert page.evaluate("picks") == [7]

    bar = boxes(page, BARS)[4]
    page.mouse.move(*middle(bar))
    page.wait_for_function("hits.at(-1)?.forward === 5")
    hit = page.evaluate("hits.at(-1)")
    assert hit["slot"] is None
    assert middle(hit["rect"]) == pytest.approx(middle(bar), abs=1)
    page.mouse.move(5, 5)
    page.wait_for_function("hits.at(-1) === null")


def test_from_dot_to_dot(page):
    show(page, plain(1, 6))
    dots = boxes(page, ACCEPTED)
    first = point_at(page, dots[0])
    page.mouse.move(*middle(dots[2]))
    page.wait_for_function("hits.length === 3")
    _, left, second = page.evaluate("hits")
    assert left is None
    assert (first["forward"], second["forward"]) == (1, 2)


def test_a_dot_that_is_scrolled_away_under_the_pointer_is_left(page):
    show(page, plain(1, 60))
    first = point_at(page, boxes(page, ACCEPTED)[-1])
    page.mouse.wheel(-54, 0)  # two forwards: at the same place is another
    page.wait_for_function("hits.length === 3")
    _, left, second = page.evaluate("hits")
    assert left is None
    assert second == {**first, "forward": first["forward"] - 2}


def test_a_dot_that_is_pointed_at_stays_where_it_is_while_the_run_goes_on(page):
    show(page, plain(1, 60))
    last = boxes(page, ACCEPTED)[-1]
    assert point_at(page, last)["forward"] == 60
    assert middle(page.locator(".mars-plot-band").bounding_box())[0] == pytest.approx(
        middle(boxes(page, BARS)[-1])[0], abs=1
    )
    add(page, plain(61, 70))
    page.wait_for_function(f"{CHART}.ariaLabel.includes('70 forwards')")
    assert last in boxes(page, ACCEPTED)
    assert page.evaluate("hits.length") == 1
    page.mouse.move(5, 5)
    shown(page, 70)
    assert not page.locator(".mars-plot-band").is_visible()


def test_a_finger_scrolls_or_taps(browser):
    page = open_sheet(browser, has_touch=True)
    mount(page)
    show(page, plain(1, 100))
    x, y = boxes(page, BARS)[8]["x"], boxes(page, DOTS)[0]["y"]
    end = page.evaluate(f"{SCROLL}.scrollLeft")
    send = page.context.new_cdp_session(page).send
    send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for moved in range(20, 160, 20):
        there = [{"x": x + moved, "y": y}]
        send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": there})
    page.wait_for_timeout(200)  # a finger that rests before it goes: no momentum
    send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function(f"{SCROLL}.scrollLeft < {end} - 50")
    assert page.evaluate("picks") == []
    settled(page)
    forward = trace(page, "tokens")["x"][8]
    page.touchscreen.tap(*middle(boxes(page, BARS)[8]))
    page.wait_for_function("picks.length")
    assert page.evaluate("picks") == [forward]
    assert page.evaluate("hits.at(-1).forward") == forward
    assert page.wrong == []
    page.close()


def test_light_marks_a_forward_and_scrolls_only_where_it_must(page):
    show(page, plain(1, 300))
    end = page.evaluate(f"{SCROLL}.scrollLeft")
    page.evaluate("plot.light(295)")
    band = page.locator(".mars-plot-band")
    forwards = trace(page, "tokens")["x"]
    bar = boxes(page, BARS)[forwards.index(295)]
    box = band.bounding_box()
    assert middle(box)[0] == pytest.approx(middle(bar)[0], abs=1)
    assert box["width"] == pytest.approx(27, abs=1)
    assert page.evaluate(f"{SCROLL}.scrollLeft") == end
    page.evaluate("plot.light(null)")
    assert not band.is_visible()

    page.evaluate("plot.light(40)")
    shown(page, 40)
    bar = boxes(page, BARS)[trace(page, "tokens")["x"].index(40)]
    assert middle(band.bounding_box())[0] == pytest.approx(middle(bar)[0], abs=1)
    # a run that goes on is followed again when nothing is lit any more
    add(page, plain(301, 302))
    page.wait_for_function(f"{CHART}.ariaLabel.includes('302 forwards')")
    assert 40 in trace(page, "tokens")["x"]
    page.evaluate("plot.light(null)")
    shown(page, 302)
    # after a run the plot stays where it is
    page.evaluate("plot.light(40)")
    shown(page, 40)
    page.evaluate("plot.light(null)")
    page.wait_for_timeout(500)
    assert 40 in trace(page, "tokens")["x"]


def test_two_thousand_forwards(page):
    show(page, plain(1, 2000))
    points = page.locator(".mars-plot-chart .point")
    assert points.count() < 250
    assert page.evaluate(f"{CHART}.data.reduce((n, t) => n + t.x.length, 0)") < 350
    assert page.evaluate(f"{SCROLL}.scrollWidth") > 2000 * 14
    page.evaluate(f"{SCROLL}.scrollLeft = 0")
    shown(page, 1)
    assert 2000 not in trace(page, "tokens")["x"]
    assert points.count() < 250
    # back at the end it follows the run
    page.evaluate(f"{SCROLL}.scrollLeft = 1e9")
    shown(page, 2000)
    show(page, plain(2001, 2002))
    # a reader who scrolled back is left in peace, at no cost at all
    page.evaluate(f"{SCROLL}.scrollLeft = 0")
    shown(page, 1)
    reacts = page.evaluate("reacts")
    add(page, plain(2003, 2010))
    page.wait_for_function(f"{CHART}.ariaLabel.includes('2010 forwards')")
    assert page.evaluate(f"{SCROLL}.scrollLeft") == 0
    assert page.evaluate("reacts") == reacts


def test_the_wheel_and_the_keys_scroll(page):
    show(page, plain(1, 300))
    page.mouse.move(*middle(page.locator(".mars-plot-chart").bounding_box()))
    end = page.evaluate(f"{SCROLL}.scrollLeft")
    page.mouse.wheel(-500, 0)
    page.wait_for_function(f"{SCROLL}.scrollLeft < {end} - 400")
    now = page.evaluate(f"{SCROLL}.scrollLeft")
    page.focus(".mars-plot-scroll")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"{SCROLL}.scrollLeft < {now}")


def test_sixty_four_slots_are_fewer_forwards_not_more_points(page):
    show(page, plain(1, 40, 64))
    assert page.locator(".mars-plot-chart .point").count() < 300
    assert page.locator(".mars-plot-chart .barlayer .point").count() <= 4


def test_a_theme_changes_the_colours(page):
    show(page, [step(1, [0.9, 0.9, 0.2], 2)])
    assert fills(page, BARS) == [ink(page, "edge-0")]
    before = page.evaluate(f"{CHART}.data[0].marker.color[0]")
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(f"colour => {CHART}.data[0].marker.color[0] !== colour", arg=before)
    assert fills(page, BARS) == [ink(page, "edge-0")]
    assert fills(page, ".ytick text")[0] == ink(page, "mute")


def test_at_most_four_redraws_a_second_and_always_the_last(page):
    show(page, plain(1, 1))
    page.evaluate("reacts = 0")
    lines = [record.model_dump(mode="json") for record in plain(2, 61)]
    seconds = page.evaluate(
        """async (lines) => {
          const started = performance.now();
          for (const line of lines) {
            plot.add(line);
            plot.draw();
            await new Promise((done) => setTimeout(done, 20));
          }
          return (performance.now() - started) / 1000;
        }""",
        lines,
    )
    shown(page, 61)
    assert 2 <= page.evaluate("reacts") <= seconds * 4 + 2


def test_nothing_is_drawn_out_of_sight(page):
    page.evaluate("document.querySelector('.mars').style.paddingTop = '3000px'")
    page.wait_for_timeout(100)
    page.evaluate("reacts = 0")
    add(page, plain(1, 5))
    page.wait_for_function(f"{CHART}.ariaLabel.includes('5 forwards')")
    assert page.evaluate("reacts") == 0
    page.evaluate("scrollTo(0, 3000)")
    shown(page, 5)


def test_a_new_run_begins_with_nothing_of_the_one_before(page):
    show(page, [step(1, [0.9] * 4, 2), move(2, 0.5), step(2, [0.9] * 4, 3, tau=0.5)])
    page.evaluate("plot.reset(); reacts = 0")
    # as many of everything as before, and drawn in one go
    add(page, [step(1, [0.3] * 4, 1, tau=0.2), move(2, 0.4), step(2, [0.8] * 4, 3, tau=0.4)])
    page.wait_for_function("reacts")
    assert trace(page, "accepted")["y"] == [0.3, 0.8, 0.8, 0.8]
    assert trace(page, "tau")["y"] == [0.2, 0.2, 0.4, 0.4]
    assert fills(page, BARS) == [ink(page, "mute"), ink(page, "edge-0")]
    assert page.locator(f".mars-plot-chart {WORDS}").all_text_contents() == ["0.2 → 0.4"]


def test_only_steps_and_moves_of_the_first_row_count(page):
    page.evaluate(
        "[{ type: 'prefill', row: 0 }, { type: 'unknown' }, { type: 'done', row: 0 }]"
        ".forEach((record) => plot.add(record))"
    )
    show(page, [step(1, [0.5], row=1), step(2, [0.6]), step(3, [0.7], row=2)][1:2])
    add(page, [step(4, [0.7], row=2)])
    page.wait_for_timeout(400)
    assert trace(page, "accepted")["y"] == [0.6]


def test_words_for_a_screen_reader(page):
    chart = page.locator(".mars-plot-chart")
    page.evaluate("plot.draw()")
    page.wait_for_function(f"{CHART}.ariaLabel")
    assert chart.get_attribute("aria-label") == "Confidence of every slot: no forwards yet"
    show(page, [*plain(1, 4), move(5, 0.5), *plain(5, 5)])
    assert chart.get_attribute("role") == "img"
    assert chart.get_attribute("aria-label") == (
        "Confidence of every slot of 5 forwards; 3 of 5 forwards gave several tokens; "
        "tau moved 1 time"
    )
    scroller = page.locator(".mars-plot-scroll")
    assert (scroller.get_attribute("tabindex"), scroller.get_attribute("role")) == ("0", "region")
    assert "arrow keys" in scroller.get_attribute("aria-label")


def test_plotly_finds_nothing_wrong_with_what_it_is_given(page):
    show(page, [*plain(1, 3), move(4, 0.5), *plain(4, 6, 1, mode="one")])
    assert page.evaluate(f"Plotly.validate({CHART}.data, {CHART}.layout) ?? []") == []
    known = page.evaluate("Object.keys(Plotly.PlotSchema.get().config)")
    assert confidence_figure()["config"].keys() <= set(known)
    assert page.locator(".modebar, .modebar-btn").count() == 0
