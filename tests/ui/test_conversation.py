"""From what was typed to the messages of a run."""

import pytest

from mars_core.errors import MarsError
from mars_core.ui.conversation import MAX_CHARACTERS, conversation

HISTORY = [
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "Because.", "more": "is ignored"},
]


def said(*arguments):
    return [(message.role, message.content) for message in conversation(*arguments)]


def test_one_prompt():
    assert said(" Why? ") == [("user", " Why? ")]
    assert said("Why?", [], "  ") == [("user", "Why?")]


def test_system_prompt_history_and_prompt_in_this_order():
    assert said("And?", HISTORY, "Be brief.") == [
        ("system", "Be brief."),
        ("user", "Why?"),
        ("assistant", "Because."),
        ("user", "And?"),
    ]


@pytest.mark.parametrize("prompt", ["", "  \n\t", None, 7, ["Why?"]])
def test_a_prompt_that_says_nothing_is_refused(prompt):
    with pytest.raises(MarsError, match="Write a prompt"):
        conversation(prompt)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ("Why?", "must be a list"),
        ({"role": "user"}, "must be a list"),
        (HISTORY[:1], "ends with the assistant"),
        (HISTORY[::-1], "in alternation"),
        ([HISTORY[0], HISTORY[0]], "in alternation"),
        ([{"role": "system", "content": "x"}, HISTORY[1]], "in alternation"),
        (["Why?", "Because."], "in alternation"),
        ([HISTORY[0], {"role": "assistant"}], "some text"),
        ([HISTORY[0], {"role": "assistant", "content": " "}], "some text"),
        ([{"role": "user", "content": 3}, HISTORY[1]], "some text"),
    ],
)
def test_what_is_no_history_is_refused(history, words):
    with pytest.raises(MarsError, match=words):
        conversation("And?", history)


def test_a_system_prompt_that_is_no_text_is_refused():
    with pytest.raises(MarsError, match="system prompt"):
        conversation("Why?", None, ["be brief"])


def test_beyond_reason_is_refused_with_both_numbers():
    with pytest.raises(MarsError, match=r"prompt has 200,001 .* 200,000"):
        conversation("x" * (MAX_CHARACTERS + 1))
    with pytest.raises(MarsError, match=r"conversation has 200,012 "):
        conversation("x" * MAX_CHARACTERS, HISTORY)
