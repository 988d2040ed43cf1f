"""The player alone, fed with literal traces: what is drawn, said, copied and asked for."""

import json
import statistics
from itertools import pairwise

import pytest

from mars_core.config import MAX_SEED, DecodeConfig
from mars_core.export.player import PLAYER_FILES
from mars_core.trace import ControlRecord, Message, SlotRecord, dump_record, read_trace
from tests.browser.harness import (
    PAYLOAD,
    feed,
    needs_chromium,
    open_player,
    records,
    wait_state,
)
from tests.ui.scripted import EOS, ScriptedEngine

pytestmark = needs_chromium

STORY = [["Once", " upon", " a"], [" time"], [" there", " was", " a", " fox", "."], [EOS]]
PLOT = """{
  figure: {},
  plotly: () => Promise.resolve("Plotly"),
}"""
# what createPlot was told is kept in `plot`
STUB = """
const createPlot = (root, { Plotly, figure, onHover, onPick }) => {
  window.plot = { added: [], lit: [], draws: 0, resets: 0, onHover, onPick };
  return {
    reset: () => (plot.added = [], plot.resets += 1),
    add: (record) => plot.added.push(record.type),
    draw: () => (plot.draws += 1),
    light: (forward) => plot.lit.push(forward),
  };
};
"""


def said(*contents, system=None):
    """Messages of a conversation: user, assistant, user, ..."""
    roles = ("user", "assistant")
    turns = [Message(role=roles[i % 2], content=text) for i, text in enumerate(contents)]
    return [*([Message(role="system", content=system)] if system else []), *turns]


def run_of(
    passes, messages=None, *, tau=0.9, disagree=(), confidence=None, rejected=None, moves=None
):
    """A run's records.

    confidence: by (forward, slot). rejected: by forward, confidences of the slots behind the
    accepted ones. moves: by forward, (mode, tau) from then on.
    """
    engine = ScriptedEngine(passes, disagree=frozenset(disagree))
    for record in engine.generate(messages or said("Go."), DecodeConfig(tau=tau)):
        if record.type != "step":
            yield record
            continue
        forward = record.forward
        if moves and forward in moves:
            mode, tau = moves[forward]
            yield ControlRecord(type="control", row=0, forward=forward, mode=mode, tau=tau)
        slots = [
            slot.model_copy(
                update={"confidence": (confidence or {}).get((forward, slot.slot), 0.95)}
            )
            for slot in record.slots
        ]
        slots += [
            SlotRecord(slot=i, id=7, text="no", prob=value, confidence=value, accepted=False)
            for i, value in enumerate((rejected or {}).get(forward, ()), len(slots))
        ]
        yield record.model_copy(update={"slots": tuple(slots), "tau": tau})


def lines_of(passes, *args, **settings):
    return [dump_record(record) + "\n" for record in run_of(passes, *args, **settings)]


def trace_of(passes, *args, **settings):
    return "".join(lines_of(passes, *args, **settings))


def opened(run, lines, at=0):
    """Lines of a run as the page sends them: from `at` on, behind its opening line."""
    opening = json.dumps(
        {"type": "page", "state": "trace", "run": run, "at": at}, separators=(",", ":")
    )
    return "".join([opening, "\n", *lines[at:]])


def page_line(state, text=""):
    return json.dumps({"type": "page", "state": state, "text": text}, separators=(",", ":")) + "\n"


def drawn(page, nth=-1):
    """Text of an answer as it is drawn, without what the player adds of its own."""
    return page.evaluate(
        """nth => {
          const text = [...document.querySelectorAll(".mars-text")].at(nth).cloneNode(true);
          for (const node of text.querySelectorAll(".mars-special, .mars-chip")) node.remove();
          return text.textContent;
        }""",
        nth,
    )


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def heard(page, name):
    return page.evaluate(f"heard.filter(([name]) => name === '{name}').map(([, detail]) => detail)")


def before(page, selector):
    """What CSS writes in front of each of these nodes."""
    return page.eval_on_selector_all(
        f".mars-text {selector}", "nodes => nodes.map(n => getComputedStyle(n, '::before').content)"
    )


def card(page):
    return page.locator(".mars-tip").inner_text()


# --- the text itself

TEXTS = {
    "code": [
        ["```", "python", "\n"],
        ["def", " f", "(x):", "\n", "\t"],
        ["return", " x", "\n\n"],
        ["```"],
    ],
    "newlines and spaces": [
        ["\n", "\n"],
        ["  ", "\n   \n", " a"],
        ["\n", "    "],
        ["b ", " \n"],
        ["c"],
    ],
    "right to left": [["مرحبا", " بالعالم"], ["، ", "שלום", "\n"], ["and", " left"]],
    "combining marks": [["e", "\u0301", "a\u0308"], ["\u0301"], ["क्\u200dष", "नि"]],
    "joined emoji": [
        ["👩\u200d👩", "\u200d👧"],
        ["👩", "\u200d", "🚀"],
        [" 👍", "🏽"],
        ["❤", "\ufe0f"],
    ],
    "flags": [["🇫", "🇷"], ["🏴\U000e0067", "\U000e0062", "\U000e007f"]],
    "split character": [["", "", "🙂"], [""], ["", "é"]],
    "invisible": [
        ["a\u200bb", "\u200d"],
        ["\ufeff", "x\u00ad"],
        ["\u2066y\u2069", "\x00\x07"],
        ["z\u2028"],
    ],
    "other spaces": [["a\u00a0b", "\u3000"], ["\u2003", "\u2009c"]],
}


@pytest.mark.parametrize("passes", TEXTS.values(), ids=TEXTS)
def test_the_text_is_that_of_the_trace_with_and_without_marks(page, passes):
    open_player(page)
    feed(page, trace_of(passes))
    whole = records(page)[-1]["text"]
    assert drawn(page) == whole
    press(page, "Show spaces")
    assert drawn(page) == whole


def test_a_long_text_is_cut_into_blocks_and_reads_as_one(page):
    open_player(page)
    # words that fill lines, first without a newline, then with some
    passes = [[" several", " words"]] * 700 + [[" line", "\n"]] * 300
    feed(page, trace_of(passes))
    wait_state(page, "done")
    blocks = page.eval_on_selector_all(
        ".mars-chunk", "nodes => nodes.map(n => n.childElementCount)"
    )
    assert len(blocks) > 4
    assert max(blocks) < 800
    assert drawn(page) == records(page)[-1]["text"]
    # what a reader selects and copies, too
    selected = page.evaluate(
        """() => {
          getSelection().selectAllChildren(document.querySelector(".mars-text"));
          return getSelection().toString();
        }"""
    )
    assert selected.strip() == records(page)[-1]["text"].strip()
    # a block without a newline ends where its last line does: nothing is left blank at its right
    assert (
        page.evaluate(
            """() => {
          const block = document.querySelector(".mars-chunk");
          const right = (node) => node.getBoundingClientRect().right;
          return right(block) - right(block.lastElementChild);
        }"""
        )
        < 150
    )


def test_brackets_hold_words_and_never_a_newline(page):
    open_player(page)
    passes = [
        ["One", ":", "\n", "\n"],
        ["\n", "\n"],
        ["\n", "  two"],
        ["\n", "    "],
        [" ", " "],
        ["a", "\n", "  ", "\n", "b"],
        ["x"],
        [" end", "\n", EOS],
    ]
    feed(page, trace_of(passes))
    runs = page.locator(".mars-text .mars-run")
    assert page.locator(".mars-text .mars-count").evaluate_all(
        "n => n.map(x => x.dataset.count)"
    ) == [str(len(tokens)) for tokens in passes if len(tokens) > 1]
    texts = runs.evaluate_all("n => n.map(x => x.textContent)")
    assert texts == ["One:", "", "two", "", "  ", "a", "b", "end"]
    tints = page.locator(".mars-text .mars-run.mars-first").evaluate_all(
        "n => n.map(x => x.dataset.tint)"
    )
    assert all(a != b for a, b in pairwise(tints))
    # a bracket that would be empty shows its newlines and spaces also where they are not asked for
    assert page.locator(".mars-text .mars-bare").count() == 3
    assert before(page, ".mars-bare .mars-newline") == ['"↵"'] * 3


def test_spaces_newlines_controls_and_special_tokens_show_when_wanted(page):
    open_player(page)
    feed(page, trace_of([["a b", "\n"], ["\t", "c\u202e"], ["", "🏴\U000e0067"], [EOS]]))
    assert before(page, ".mars-newline") == before(page, ".mars-control") == ["none"]
    assert before(page, ".mars-part") == before(page, ".mars-tab") == ["none"]
    assert not page.locator(".mars-special").is_visible()
    space = page.locator(".mars-text .mars-space")
    width = space.bounding_box()["width"]
    toggle = page.get_by_role("button", name="Show spaces")
    assert toggle.get_attribute("aria-pressed") == "false"
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "true"
    assert before(page, ".mars-newline") == ['"↵"']
    assert before(page, ".mars-tab") == ['"→"']
    assert before(page, ".mars-part") == ['"·"']
    assert page.locator(".mars-control").get_attribute("data-label") == "U+202E"
    assert before(page, ".mars-control") == ['"U+202E"']
    assert page.locator(".mars-special").inner_text() == EOS
    assert "gradient" in space.evaluate("n => getComputedStyle(n).backgroundImage")
    assert space.bounding_box()["width"] == width


def test_a_direction_override_turns_nothing_around_it(page):
    open_player(page)
    feed(page, trace_of([["one", " \u202etwo"], [" three", " four"]]))
    lefts = page.eval_on_selector_all(
        ".mars-text .mars-word", "nodes => nodes.map(n => n.getBoundingClientRect().left)"
    )
    assert len(lefts) == 4
    assert lefts == sorted(lefts)
    # "two" is not mirrored: its t is in front of its o
    assert page.locator(".mars-text .mars-word >> nth=1").evaluate(
        """node => {
          const at = (i) => {
            const range = document.createRange();
            range.setStart(node.firstChild, i);
            range.setEnd(node.firstChild, i + 1);
            return range.getBoundingClientRect().left;
          };
          return at(0) < at(2);
        }"""
    )


def test_a_right_to_left_line_begins_at_the_right(page):
    open_player(page)
    feed(page, trace_of([["left", "\n"], ["مرحبا", "\n"], ["left"]]))
    stream = page.locator(".mars-text").bounding_box()
    left, arabic, again = (
        box.bounding_box() for box in page.locator(".mars-text .mars-word").all()
    )
    assert left["x"] - stream["x"] < 20
    assert again["x"] - stream["x"] < 20
    assert stream["x"] + stream["width"] - arabic["x"] - arabic["width"] < 20
    # and a bracket that goes on in the next line is open at the left, where it goes on
    assert page.locator(".mars-text .mars-run").evaluate_all(
        "nodes => nodes.map(n => getComputedStyle(n).direction)"
    ) == ["ltr", "rtl"]


def test_no_text_of_a_trace_is_ever_executed(page):
    open_player(page)
    lines = lines_of(
        [[PAYLOAD, " and"], [PAYLOAD, " more"], [EOS]], said("x", PAYLOAD, PAYLOAD, system=PAYLOAD)
    )
    step = json.loads(lines[3])
    step["hindsight"][0].update(ar_text=PAYLOAD, ar_token=1)
    step["tokens"][1].update(special=PAYLOAD, text="")
    step["slots"][0]["alternatives"][0]["text"] = PAYLOAD
    lines[3] = json.dumps(step) + "\n"
    feed(page, "".join(lines))
    feed(page, page_line("error", PAYLOAD))
    press(page, "Show spaces")
    page.locator(".mars-stream").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        assert page.locator(".mars-tip").is_visible()
    assert page.locator(".mars-notice").inner_text() == PAYLOAD
    assert page.locator(".mars-asked").last.inner_text() == PAYLOAD
    assert page.locator("#injected, .mars img, .mars script").count() == 0
    assert "{{7*7}}" in page.locator(".mars-text").last.inner_text()


# --- colours


def test_every_mode_marks_the_same_nodes_and_has_its_legend(page):
    open_player(page)
    passes = [
        ["a"],
        ["b", " c"],
        ["d", " e", " f"],
        list("ghij"),
        list("klmnop"),
        list("qrstuvwxy"),
    ]
    feed(page, trace_of(passes))
    runs = page.locator(".mars-text .mars-run")
    assert runs.evaluate_all("n => n.map(x => x.dataset.level).join(' ')") == "2 3 4 5 8"
    page.evaluate(
        """() => {
          window.changes = 0;
          new MutationObserver((list) => (changes += list.length)).observe(
            document.querySelector(".mars-text"),
            { subtree: true, childList: true, attributes: true, characterData: true });
        }"""
    )
    grounds = {}
    for mode in ("pass", "count", "confidence", "agreement"):
        page.locator(f".mars-colours input[value={mode}]").check()
        assert page.locator(".mars-legend:visible").evaluate_all(
            "n => n.map(x => x.dataset.for)"
        ) == [mode]
        grounds[mode] = runs.evaluate_all(
            "nodes => nodes.map(n => getComputedStyle(n).backgroundColor)"
        )
        # bracket and number are there in each
        assert runs.evaluate_all(
            "nodes => nodes.every(n => getComputedStyle(n).borderBottomWidth === '2px')"
        )
        assert [text[-2:] for text in before(page, ".mars-count")] == ['2"', '3"', '4"', '6"', '9"']
    assert len(set(grounds["pass"])) == len(set(grounds["count"])) == 5
    assert set(grounds["confidence"]) == set(grounds["agreement"]) == {"rgba(0, 0, 0, 0)"}
    assert page.evaluate("changes") == 0


def test_the_mode_is_chosen_with_the_keyboard_and_remembered(page):
    open_player(page)
    root = page.locator(".mars")
    assert root.get_attribute("data-colour") == "pass"
    page.locator(".mars-colours input[value=pass]").focus()
    page.keyboard.press("ArrowRight")
    assert root.get_attribute("data-colour") == "count"
    open_player(page)
    assert root.get_attribute("data-colour") == "count"
    assert page.locator(".mars-colours input[value=count]").is_checked()


def test_a_page_without_storage_has_its_colours_too(page):
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error(); } })"
    )
    open_player(page)
    page.locator(".mars-colours input[value=agreement]").check()
    assert page.locator(".mars").get_attribute("data-colour") == "agreement"


def test_confidence_falls_into_five_bins(page):
    open_player(page)
    values = [0.29, 0.3, 0.5, 0.7, 0.9]
    feed(
        page,
        trace_of([["v", "w", "x", "y", "z"]], confidence={(1, i): v for i, v in enumerate(values)}),
    )
    words = page.locator(".mars-text .mars-word")
    assert words.evaluate_all("n => n.map(x => x.dataset.confidence)") == ["0", "1", "2", "3", "4"]
    page.locator(".mars-colours input[value=confidence]").check()
    style = (
        "nodes => nodes.map(n => (s => s.backgroundColor + s.textDecoration)(getComputedStyle(n)))"
    )
    looks = words.evaluate_all(style)
    assert len(set(looks)) == 5
    # whoever sees no colour has the underline
    lines = words.evaluate_all(
        """nodes => nodes.map((node) => {
          const style = getComputedStyle(node);
          return [style.textDecorationStyle, style.textDecorationThickness].join();
        })"""
    )
    assert len(set(lines)) == 5


def test_what_ar_would_have_chosen(page):
    open_player(page)
    lines = lines_of([["a", " b", " c"], [" d", " e"], [EOS]], disagree={(1, 2)})
    feed(page, "".join(lines[:4]))
    kinds = """nodes => nodes.map(
      ({ classList }) => [...classList].find((name) => /same|odd|unseen/.test(name)) ?? "own")"""
    words = page.locator(".mars-text .mars-word")
    assert words.evaluate_all(kinds) == ["own", "mars-same", "mars-odd", "own", "mars-unseen"]
    feed(page, "".join(lines))
    assert words.evaluate_all(kinds)[-1] == "mars-same"


# --- the conversation


def answer(page, passes, *contents, **settings):
    """Feed a whole run that answers these messages."""
    feed(page, trace_of(passes, said(*contents), **settings))
    wait_state(page, "done", "stopped")


def test_turns_that_are_drawn_stay_with_their_colours(page):
    open_player(page)
    answer(page, [["Hello", " you"], ["!"]], "Hi.")
    page.evaluate("window.first = document.querySelector('.mars-turn')")
    answer(page, [["Good", " bye"]], "Hi.", "Hello you!", "Bye.")
    assert page.locator(".mars-asked").all_inner_texts() == ["Hi.", "Bye."]
    assert page.evaluate("document.querySelector('.mars-turn') === window.first")
    assert page.locator(".mars-turn >> nth=0 >> .mars-run").count() == 1
    assert page.locator(".mars-tokens dd").inner_text() == "2"
    # arrow keys step through the tokens of both
    page.locator(".mars-stream").focus()
    cards = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        cards.append(card(page).split("\n")[0])
    assert cards == ["“Hello”", "“ you”", "“!”", "“Good”", "“ bye”"]
    page.keyboard.press("Escape")
    assert not page.locator(".mars-tip").is_visible()


def test_turns_that_are_not_drawn_here_come_as_plain_text(page):
    open_player(page)
    answer(page, [["Hello", " you"]], "Hi.")
    answer(page, [["So", " long"]], "Hey.", "Hello  there.\n\n", "Bye.", "Bye?", "Yes.")
    assert page.locator(".mars-asked").all_inner_texts() == ["Hey.", "Bye.", "Yes."]
    assert [drawn(page, i) for i in range(3)] == ["Hello  there.\n\n", "Bye?", "So long"]
    assert page.locator(".mars-text .mars-run").count() == 1
    page.locator(".mars-stream").focus()
    page.keyboard.press("ArrowRight")
    assert card(page).startswith("“So”")


def test_history_and_what_repeats_the_last_turn(page):
    open_player(page)
    assert page.evaluate("[marsPlayer.history(), marsPlayer.again()]") == [[], None]
    answer(page, [["One", "!"]], "1?")
    answer(page, [[" \n"]], "1?", "One!", "2?")
    # a turn whose answer says nothing is none
    first = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "One!"}]
    assert page.evaluate("marsPlayer.history()") == first
    assert page.evaluate("marsPlayer.again()") == {"prompt": "2?", "history": first}
    # a run that goes on counts with the text it has so far
    feed(page, "".join(lines_of([["Three"], ["."]], said("3?"))[:3]))
    assert page.evaluate("marsPlayer.history()") == [
        {"role": "user", "content": "3?"},
        {"role": "assistant", "content": "Three"},
    ]


def test_editing_a_turn(page):
    open_player(page)
    answer(page, [["One"]], "1?")
    answer(page, [["Two"]], "1?", "One", "2?")
    page.locator(".mars-edit").first.click()
    assert heard(page, "edit") == ["1?"]
    assert page.evaluate("[marsPlayer.editing, marsPlayer.history()]") == ["1?", []]
    note = page.locator(".mars-editing")
    assert "Generate replaces it" in note.inner_text()
    assert not page.get_by_role("button", name="Regenerate").is_visible()
    press(page, "Cancel")
    assert page.evaluate("document.activeElement.textContent") == "Edit"
    assert note.count() == 0
    assert page.evaluate("marsPlayer.editing") is None
    assert len(page.evaluate("marsPlayer.history()")) == 4
    # refused: the editing goes on; waited for: it is over, and the new header cuts
    page.locator(".mars-edit").first.click()
    feed(page, page_line("error", "No."))
    assert page.evaluate("marsPlayer.editing") == "1?"
    feed(page, page_line("waiting", "Waiting …"))
    assert page.evaluate("marsPlayer.editing") is None
    assert page.locator(".mars-asked").count() == 2
    answer(page, [["Uno"]], "1, in Spanish?")
    assert page.locator(".mars-asked").all_inner_texts() == ["1, in Spanish?"]
    assert drawn(page) == "Uno"


def test_buttons_are_there_where_they_make_sense(page):
    open_player(page)
    shown = lambda: {  # noqa: E731
        name
        for name in ("Edit", "Copy", "Regenerate", "Copy chat", "New chat", "Save trace")
        if page.get_by_role("button", name=name, exact=True).filter(visible=True).count()
    }
    assert shown() == set()
    lines = lines_of(STORY)
    feed(page, "".join(lines[:4]))
    assert shown() == {"Copy chat", "New chat", "Save trace"}
    feed(page, "".join(lines))
    assert shown() == {"Edit", "Copy", "Regenerate", "Copy chat", "New chat", "Save trace"}
    feed(page, page_line("waiting", "Waiting …"))
    assert shown() == {"Copy chat", "New chat"}
    assert page.locator(".mars-status").inner_text() == "Waiting …"
    feed(page, page_line("idle"))
    press(page, "Regenerate")
    assert heard(page, "again") == [None]


def test_new_chat_forgets_and_ignores_what_still_comes(page):
    open_player(page)
    lines = lines_of(STORY)
    feed(page, opened(1, lines[:4]))
    press(page, "New chat")
    assert heard(page, "over") == [None]
    wait_state(page, "empty")
    feed(page, opened(1, lines))
    feed(page, opened(1, lines, at=3))
    assert records(page) == []
    assert heard(page, "gap") == []
    feed(page, page_line("waiting"))
    feed(page, opened(1, lines))
    wait_state(page, "waiting")
    # called off while it was waited for: that run is ignored under any name
    page.evaluate("marsPlayer.startOver()")
    feed(page, opened(2, lines))
    assert records(page) == []
    feed(page, page_line("waiting"))
    feed(page, opened(2, lines))
    feed(page, opened(3, lines[:4]))
    wait_state(page, "running")
    assert page.evaluate("marsPlayer.history()") == [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "Once upon a time"},
    ]


@pytest.mark.parametrize("secure", [True, False], ids=["clipboard", "plain http"])
def test_copying(page, secure):
    if secure:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    else:
        page.add_init_script(
            "Object.defineProperty(Navigator.prototype, 'clipboard', { value: undefined })"
        )
    open_player(page)
    feed(
        page,
        trace_of(
            [["1,", "\n", "  2\t", "👩\u200d👧"], [EOS]],
            said("Why?", "So.", "Count.", system="Be brief."),
        ),
    )

    def pasted():
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('textarea'), { id: 'box' }))"
        )
        page.locator("#box").focus()
        page.keyboard.press("Control+V")
        text = page.locator("#box").input_value()
        page.evaluate("document.querySelector('#box').remove()")
        return text

    press(page, "Copy")
    page.get_by_role("button", name="Copied").wait_for()
    assert page.locator(".mars-live").inner_text() == "Copied."
    assert pasted() == "1,\n  2\t👩\u200d👧"
    page.get_by_role("button", name="Copy", exact=True).wait_for()
    press(page, "Copy chat")
    page.get_by_role("button", name="Copied").wait_for()
    assert pasted() == (
        "System: Be brief.\n\nUser: Why?\n\nAssistant: So.\n\n"
        "User: Count.\n\nAssistant: 1,\n  2\t👩\u200d👧"
    )


def test_a_long_question_shows_its_beginning_until_asked(page):
    open_player(page)
    short = "Why is the sky blue?"
    long = "word " * 30_000
    feed(page, trace_of([["So", "."]], said(short, "Because.", long, system="Be brief. " * 40)))
    more = page.locator(".mars-question .mars-more")
    page.locator(".mars-question >> nth=1 >> .mars-more").wait_for()
    assert [button.is_visible() for button in more.all()] == [False, True]
    asked = page.locator(".mars-asked").last
    line = page.locator(".mars-asked").first.bounding_box()["height"]
    assert asked.bounding_box()["height"] < 3.5 * line
    more.last.click()
    assert asked.evaluate("n => n.textContent") == long
    assert asked.bounding_box()["height"] > 10 * line
    assert more.last.get_attribute("aria-expanded") == "true"
    more.last.click()
    assert asked.bounding_box()["height"] < 3.5 * line
    system = page.locator(".mars-system > p")
    assert system.inner_text().startswith("System: Be brief.")
    assert system.bounding_box()["height"] < 1.5 * line
    assert page.evaluate("marsPlayer.again().prompt") == long


# --- numbers, status, cards


def test_numbers_since_the_last_move_and_tau_1_is_said(page):
    open_player(page)
    passes = [["a", " b"], [" c", " d"], [" e"], [" f", " g", " h"], [" i"]]
    lines = lines_of(passes, moves={3: ("tau", 0.5), 5: ("tau", 1.0)})
    feed(page, "".join(lines[:4]))
    since = page.locator(".mars-since")
    assert since.inner_text() == ""
    assert page.locator(".mars-rate dd").first.inner_text() == "2.00"
    feed(page, "".join(lines[:5]))
    assert since.inner_text() == "since tau 0.5: –"
    feed(page, "".join(lines[:7]))
    assert since.inner_text() == "since tau 0.5: 2.00"
    assert page.locator(".mars-status").inner_text() == "tau 0.5"
    feed(page, "".join(lines[:9]))
    assert since.inner_text() == "since tau 1: 1.00"
    assert page.locator(".mars-status").inner_text() == "tau 1: one token per pass, enforced"
    assert page.locator(".mars-chip").all_inner_texts()[-1] == "tau 0.9 → 1"
    feed(page, "".join(lines))
    assert page.locator(".mars-number:not([hidden]) dd:not(.mars-since)").all_inner_texts() == [
        "9",
        "5",
        "1.80",
        "180",
        "13",
    ]
    assert page.locator(".mars-status").inner_text() == page.locator(".mars-live").inner_text()


def test_the_card_of_a_token(page):
    open_player(page)
    passes = [["a", " b", " c"], [" d", " e"]]
    feed(page, trace_of(passes, disagree={(1, 2)}, confidence={(1, 1): 0.914}))
    words = page.locator(".mars-text .mars-word")
    said = []
    for word in words.all():
        word.hover()
        said.append(card(page))
    assert "forward 1 · slot 0 · 10 ms" in said[0]
    assert "always accepted" in said[0]
    assert "AR’s own choice" in said[0]
    assert "confidence 0.914, tau 0.9" in said[1]
    assert "AR’s choice: the same" in said[1]
    assert "AR’s choice: “other” (0.50)" in said[2]
    assert "not known, no later forward saw it" in said[4]
    assert "“ e”" in said[4]
    page.mouse.move(2, 2)
    assert not page.locator(".mars-tip").is_visible()


def test_a_run_that_was_called_off_leaves_everything_as_it_was(page):
    open_player(page)
    lines = lines_of(STORY)
    feed(page, opened(1, lines[:5]))
    feed(page, page_line("waiting", "Waiting: you are next."))
    # the run before ends meanwhile: the page still waits
    feed(page, opened(1, lines))
    wait_state(page, "waiting")
    assert page.locator(".mars-status").inner_text() == "Waiting: you are next."
    feed(page, page_line("idle"))
    wait_state(page, "done")
    assert "ended its answer" in page.locator(".mars-status").inner_text()
    feed(page, page_line("waiting", "Waiting …"))
    feed(page, page_line("failed", "Out of memory."))
    wait_state(page, "done")
    assert page.locator(".mars-notice").inner_text() == "Out of memory."


def test_windows_of_a_run_overlap_and_a_gap_is_asked_for(page):
    open_player(page)
    lines = lines_of([[" word", f" {i}"] for i in range(60)])
    feed(page, opened(1, lines[:20]))
    feed(page, opened(1, lines[:30], at=12))
    assert heard(page, "gap") == []
    feed(page, opened(1, lines[:50], at=40))
    assert len(heard(page, "gap")) == 1
    feed(page, opened(1, lines))
    wait_state(page, "done")
    assert [r["forward"] for r in records(page) if r["type"] == "step"] == list(range(1, 61))
    assert drawn(page) == records(page)[-1]["text"]
    page.evaluate("marsPlayer.reset()")
    feed(page, opened(1, lines, at=40))
    assert len(heard(page, "gap")) == 2


def test_a_saved_trace_is_the_trace(page):
    open_player(page)
    sent = [record.model_copy(update={"of_tomorrow": [1.5]}) for record in run_of(STORY)]
    sent[0] = sent[0].model_copy(update={"seed": MAX_SEED})
    feed(page, "".join(dump_record(record) + "\n" for record in sent))
    with page.expect_download() as download:
        press(page, "Save trace")
    assert read_trace(download.value.path()) == sent


# --- the plot


def open_with_plot(page, options=PLOT, stub=STUB):
    open_player(
        page,
        files=[name for name in PLAYER_FILES if name != "plot.js"],
        options=options,
        before=stub,
    )


def test_the_plot_gets_the_records_also_when_it_comes_late(page):
    open_with_plot(page, "{ figure: {}, plotly: () => new Promise((go) => (window.ready = go)) }")
    lines = lines_of(STORY)
    page.wait_for_function("window.ready !== undefined")
    feed(page, "".join(lines[:4]))
    page.evaluate("ready('Plotly')")
    page.wait_for_function("window.plot?.draws")
    assert page.evaluate("plot.added") == ["header", "prefill", "step", "step"]
    feed(page, "".join(lines))
    assert page.evaluate("plot.added.slice(4)") == ["step", "step", "done"]
    feed(page, trace_of([["x"]], said("Again.")))
    assert page.evaluate("[plot.resets, plot.added.length]") == [1, 4]


def test_plot_and_text_light_each_other(page):
    open_with_plot(page)
    page.wait_for_function("window.plot")
    answer(page, [["One"]], "1?")
    passes = [["Two", " of"], [" them", " now"]]
    feed(page, trace_of(passes, said("1?", "One", "2?"), rejected={1: [0.85, 0.95], 2: [0.95]}))
    words = page.locator(".mars-text .mars-word")
    words.nth(2).hover()
    words.nth(0).hover()  # a token of an earlier run
    words.nth(3).hover()
    page.mouse.move(2, 2)
    assert [forward for forward in page.evaluate("plot.lit") if forward] == [1, 2]
    assert page.evaluate("plot.lit.at(-1)") is None

    rect = "{ left: 300, top: 300, bottom: 310, right: 310 }"
    cards = []
    for forward, slot in ((1, 1), (1, 2), (1, 3), (2, 2), (2, "null")):
        page.evaluate(f"plot.onHover({{ forward: {forward}, slot: {slot} }}, {rect})")
        cards.append(card(page))
    assert page.locator(".mars-lit").all_inner_texts() == ["them", "now"]
    assert "slot 1" in cards[0]
    assert "AR’s choice: the same" in cards[0]
    assert "rejected: below tau 0.9" in cards[1]
    assert "rejected: behind a rejected slot" in cards[2]
    assert "rejected: the answer ended before it" in cards[3]
    assert "forward 2 · tau 0.9 · 2 tokens · 10 ms" in cards[4]
    page.evaluate("plot.onHover(null)")
    assert page.locator(".mars-lit").count() == 0
    assert not page.locator(".mars-tip").is_visible()


def test_a_forward_picked_in_the_plot_is_scrolled_to(page):
    open_with_plot(page)
    page.wait_for_function("window.plot")
    feed(page, trace_of([[" line", f" {i}", "\n"] for i in range(80)]))
    wait_state(page, "done")
    first = page.get_by_text("0", exact=True).first
    assert page.locator(".mars-stream").evaluate("s => s.scrollTop") > 500
    page.evaluate("plot.onPick(1)")
    assert page.locator(".mars-stream").evaluate("s => s.scrollTop") < 100
    assert first.is_visible()
    assert page.get_by_role("button", name="Latest ↓").is_visible()
    press(page, "Latest ↓")
    page.wait_for_function("document.querySelector('.mars-follow').hidden")


def test_a_plot_that_cannot_be_loaded_is_a_quiet_sentence(page):
    open_with_plot(page, "{ figure: {}, plotly: () => Promise.reject(new Error('offline')) }")
    page.get_by_text("The plot could not be loaded").wait_for()
    feed(page, trace_of(STORY))
    wait_state(page, "done")
    assert records(page)[-1]["text"] == drawn(page)


# --- size and cost


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_overflows(page, width):
    page.set_viewport_size({"width": width, "height": 740})
    open_player(page)
    messages = said("x" * 400, "y" * 400, "Why?", system="z" * 400)
    feed(page, trace_of([["w" * 300, " b"], *STORY], messages, moves={3: ("tau", 0.5)}))
    page.locator(".mars-edit").first.click()
    for mode in ("pass", "count", "confidence", "agreement"):
        page.locator(f".mars-colours input[value={mode}]").check()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".mars-stream").evaluate("s => s.scrollWidth - s.clientWidth") <= 0


def test_a_run_of_2000_forwards_costs_the_same_to_its_end(page):
    open_player(page)
    lines = lines_of(
        [[" some", " words", " here", "\n" if i % 12 == 0 else ","] for i in range(2000)]
    )
    took = page.evaluate(
        """async ([lines, step]) => {
          const took = [];
          for (let end = step; end < lines.length + step; end += step) {
            const at = Math.max(0, end - 100);
            const opening = `{"type":"page","state":"trace","run":1,"at":${at}}\\n`;
            const text = opening + lines.slice(at, end).join("");
            const start = performance.now();
            marsPlayer.feed(text);
            took.push(performance.now() - start);
            await new Promise((next) => setTimeout(next));
          }
          return took;
        }""",
        [lines, 16],
    )
    wait_state(page, "done")
    assert page.evaluate("marsPlayer.records.length") == len(lines)
    begin, end = (statistics.median(some) for some in (took[5:35], took[-30:]))
    assert end < 60
    assert end < 4 * begin + 5
