"""Drafts on the page: proposed behind the text, kept, or struck through where AR disagrees."""

import pytest

from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.decode import decode
from mars_core.engine import Recorder
from mars_core.text import Detokenizer, TokenText
from mars_core.trace import Message, dump_record
from tests import scripted
from tests.browser.harness import feed, needs_chromium, open_player, wait_state
from tests.browser.test_player import drawn
from tests.tiny import tiny_tokenizer
from tests.ui.scripted import header

pytestmark = needs_chromium

TEXT = "one two three four and five and six"
PROMPT = [7, 8, 9]


@pytest.fixture(scope="module")
def lines():
    """A run whose masks err at every fifth place, two drafts at most, as lines of its trace."""
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode(TEXT, add_special_tokens=False)

    def predict(position, is_mask):
        place = position - len(PROMPT) + 1
        wrong = is_mask and place % 5 == 4
        return ids[(place + 7 * wrong) % len(ids)], 50.0

    config = DecodeConfig(mode="verified", drafts=2, max_new_tokens=len(ids), alternatives=1)
    session = Session(scripted.ScriptedModel(predict, vocab=400), 256)
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    recorder = Recorder(TokenText(tokenizer), Detokenizer(tokenizer))
    records = [header([Message(role="user", content="Count.")], config)]
    records += [recorder.record(e, 10.0) for e in decode(session, PROMPT, config, special)]
    assert {d.verdict for r in records if r.type == "step" for d in r.drafts} == {
        "kept", "rejected", "unreached",
    }  # fmt: skip
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
        assert texts(page, ".mars-draft:not(.mars-struck)") == proposed
        assert texts(page, ".mars-struck") == refused
        # neither is part of the text that is selected, copied or asked for
        assert drawn(page) == so_far
    wait_state(page, "done")
    assert texts(page, ".mars-draft") == []
    assert drawn(page) == TEXT
    kept = sum(d.verdict == "kept" for r in records if r.type == "step" for d in r.drafts)
    fed = sum(len(r.drafts) for r in records if r.type == "step")
    assert page.locator(".mars-drafts dd").inner_text() == f"{kept} of {fed}"


def test_a_refused_draft_stands_before_what_ar_says_instead(page, lines):
    text, records = lines
    open_player(page)
    number = next(
        i for i, r in enumerate(records, 1) if r.type == "step" and "rejected" in str(r.drafts)
    )
    feed(page, "".join(text[:number]))
    own = records[number - 1].tokens[-1]
    behind = page.eval_on_selector_all(
        ".mars-struck", "nodes => nodes.at(-1).nextElementSibling.textContent"
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


def test_a_run_without_drafts_has_no_such_number(page):
    open_player(page)
    assert page.locator(".mars-drafts").is_hidden()
