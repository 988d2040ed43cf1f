"""Drafts on the page: proposed behind the text, kept, or struck through where AR disagrees."""

import pytest

from mars_core.trace import dump_record
from tests.browser.harness import feed, needs_chromium, open_player, wait_state
from tests.browser.test_player import drawn, open_with_plot
from tests.drafted import TEXT, drafted_records

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def lines():
    """A run with drafts: its lines, and its records."""
    records = drafted_records()
    verdicts = {d.verdict for r in records if r.type == "step" for d in r.drafts}
    assert verdicts == {"kept", "rejected", "unreached"}
    return [dump_record(record) + "\n" for record in records], records


def texts(page, selector):
    return page.eval_on_selector_all(selector, "nodes => nodes.map((n) => n.dataset.text)")


def test_drafts_come_with_the_forward_that_proposed_them_and_go_with_the_next(page, lines):
    """At every forward: the text so far, what is proposed behind it, what was just refused."""
    text, records = lines
    open_player(page)
    so_far = ""
    for number, record in enumerate(records, 1):
        feed(page, "".join(text[:number]))
        if record.type != "step":
            continue
        so_far += "".join(token.text for token in record.tokens)
        proposed = [slot.text for slot in record.slots if not slot.accepted]
        refused = [draft.text for draft in record.drafts if draft.verdict != "kept"]
        assert texts(page, ".mars-text .mars-draft:not(.mars-struck)") == proposed
        assert texts(page, ".mars-text .mars-struck") == refused
        # neither is part of the text that is selected, copied or asked for
        assert drawn(page) == so_far
    wait_state(page, "done")
    assert texts(page, ".mars-text .mars-draft") == []
    assert drawn(page) == TEXT
    kept = sum(d.verdict == "kept" for r in records if r.type == "step" for d in r.drafts)
    fed = sum(len(r.drafts) for r in records if r.type == "step")
    assert page.locator(".mars-drafts dd").inner_text() == f"{kept}/{fed}"


def test_a_refused_draft_stands_before_what_ar_says_instead(page, lines):
    text, records = lines
    open_player(page)
    number = next(
        i for i, r in enumerate(records, 1) if r.type == "step" and "rejected" in str(r.drafts)
    )
    feed(page, "".join(text[:number]))
    own = records[number - 1].tokens[-1]
    behind = page.eval_on_selector_all(
        ".mars-text .mars-struck", "nodes => nodes.at(-1).nextElementSibling.textContent"
    )
    assert behind == (own.text[:1] if own.text.startswith(" ") else own.text)


def test_the_card_of_a_draft_says_who_proposed_it(page, lines):
    text, _ = lines
    open_player(page)
    feed(page, "".join(text))
    cards = set()
    for _ in range(12):
        page.locator(".mars-stream").press("ArrowRight")
        cards.add(page.locator(".mars-tip").inner_text())
    drafted = [card for card in cards if "drafted by mask" in card]
    assert drafted
    assert all("AR’s own choice: it was asked" in card for card in drafted)
    assert all("draft " in card and "of forward" in card for card in drafted)


def test_the_slot_of_a_kept_draft_shows_its_token_in_the_plot_and_a_refused_one_does_not(
    page, lines
):
    text, records = lines
    steps = [record for record in records if record.type == "step"]
    drafts = [(step, draft) for step in steps for draft in step.drafts if draft.origin]
    open_with_plot(page)
    page.wait_for_function("window.plot")
    feed(page, "".join(text))
    wait_state(page, "done")
    for verdict, drafted in (("kept", True), ("rejected", False)):
        step, draft = next(pair for pair in drafts if pair[1].verdict == verdict)
        where, rect = draft.origin, "{ left: 300, top: 300, bottom: 310, right: 310 }"
        page.evaluate(f"plot.onHover({{ forward: {where.forward}, slot: {where.slot} }}, {rect})")
        said = page.locator(".mars-tip").inner_text()
        assert (f"drafted by mask {where.slot} of forward {where.forward}" in said) == drafted
        assert f"forward {step.forward if drafted else where.forward} ·" in said


def test_a_run_without_drafts_has_no_such_number(page):
    open_player(page)
    assert page.locator(".mars-drafts").is_hidden()
