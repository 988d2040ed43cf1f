"""Pieces of text add up to the text, whatever the tokens."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mars_core.text import Detokenizer, StopStrings, TokenText, special_ids
from tests.tiny import EOS_ID, SPECIALS, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def pieces_of(ids):
    detokenizer = Detokenizer(TOKENIZER)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


@given(st.text())
@example("naïve 🙂 שלום\n\n\tdef f(x):  return x")
@example("�� a")
def test_pieces_concatenate_to_the_text(text):
    assert "".join(pieces_of(TOKENIZER.encode(text, add_special_tokens=False))) == text


@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=60))
def test_any_tokens_even_broken_characters(ids):
    assert "".join(pieces_of(ids)) == TOKENIZER.decode(
        ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def test_a_character_comes_whole_with_the_token_that_completes_it():
    ids = TOKENIZER.encode("a🙂b", add_special_tokens=False)
    assert pieces_of(ids) == ["a", "", "", "", "🙂", "b", ""]
    assert pieces_of(ids[:3])[-1] == "�"


def test_special_tokens_have_names_and_no_text():
    tokens = TokenText(TOKENIZER)
    assert tokens.special(EOS_ID) == "<|im_end|>"
    assert tokens.special(100) is None
    assert pieces_of([EOS_ID, *TOKENIZER.encode("x", add_special_tokens=False)]) == ["", "x", ""]
    assert {SPECIALS.index("<empty_output>"), EOS_ID} <= special_ids(TOKENIZER)


def test_labels_keep_spaces_and_name_what_is_not_in_the_vocabulary():
    tokens = TokenText(TOKENIZER)
    the = TOKENIZER.convert_tokens_to_ids("Ġthe")
    assert tokens.label(the) == " the"
    assert tokens.label(100_000) == "<unused 100000>"


@pytest.mark.parametrize("text", ["alpha END omega", "ENDless", "E N DEND"])
def test_stop_strings_are_found_across_tokens(text):
    stop = StopStrings(TOKENIZER, ["END", "other"])
    seen = []
    for token in TOKENIZER.encode(text, add_special_tokens=False):
        seen.append(token)
        if stop.push(token):
            break
    assert TOKENIZER.decode(seen) == text[: text.index("END") + 3]


def test_no_stop_string_no_stop():
    stop = StopStrings(TOKENIZER, ["zebra"])
    assert not any(map(stop.push, TOKENIZER.encode("a zeb ra" * 50, add_special_tokens=False)))
