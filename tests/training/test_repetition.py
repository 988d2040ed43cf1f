"""The rule by which looping answers are told from good ones."""

from __future__ import annotations

import pytest

from mars_core.training.repetition import is_looping, repeated_share, repeating_tokens

WORDS = [f"w{i}" for i in range(100)]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0),
        ("one two three four five", 0),
        ("one two three four five six", 0),
        ("no " * 8, 2 / 3),  # three runs, all the same
        ("a b c d e f " * 2, 1 / 7),
        (" ".join(WORDS), 0),
    ],
)
def test_share_counts_every_run_that_was_there_before(text, share):
    assert repeated_share(text) == pytest.approx(share)


def test_exactly_thirty_percent_is_no_loop():
    exactly = " ".join(WORDS[:14] + WORDS[:11])  # 6 of 20 runs
    assert repeated_share(exactly) == 0.3
    assert not is_looping(exactly)
    assert is_looping(" ".join(WORDS[:14] + WORDS[:12]))  # 7 of 21


def test_a_chorus_is_fine_and_a_stuck_list_is_not():
    verse = " ".join(WORDS)
    assert not is_looping(f"{verse} we all live here by the sea {verse[:20]} we all live here")
    question = "What is the most important thing you can do for your sleep?"
    assert is_looping("\n".join(f"{i}. {question}" for i in (1, 2, 3)))


def test_tokens_repeat_from_the_end_of_the_first_run_that_was_there_before():
    assert repeating_tokens([1, 2, 3, 1, 2, 3, 1, 2], run_tokens=3) == [5, 6, 7]
    assert repeating_tokens([5] * 9) == [6, 7, 8]
    assert repeating_tokens([*range(20), *range(5)]) == []
    assert repeating_tokens([*range(20), *range(6)]) == [25]
    assert repeating_tokens([1, 2]) == []
