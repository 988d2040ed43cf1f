"""When a text has got stuck: the one rule by which looping answers are told from good ones.

The same rule drops answers in distillation and excludes them from evaluation. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence

RUN_WORDS = 6
RUN_TOKENS = 6
MAX_REPEATED_SHARE = 0.3


def repeated_share(text: str, run_words: int = RUN_WORDS) -> float:
    """The share of `run_words`-word runs in `text` that occurred before in it, in [0, 1).

    Words are what white space separates. A text too short for a run repeats nothing.
    """
    words = text.split()
    runs = list(zip(*(words[start:] for start in range(run_words)), strict=False))
    return (len(runs) - len(set(runs))) / len(runs) if runs else 0.0


def is_looping(text: str) -> bool:
    """Whether more than 30 % of the text's 6-word runs are repetitions."""
    return repeated_share(text) > MAX_REPEATED_SHARE


def repeating_tokens(ids: Sequence[int], run_tokens: int = RUN_TOKENS) -> list[int]:
    """The places in `ids` that complete a run of `run_tokens` tokens which occurred before."""
    seen: set[tuple[int, ...]] = set()
    places = []
    for end in range(run_tokens, len(ids) + 1):
        run = tuple(ids[end - run_tokens : end])
        if run in seen:
            places.append(end - 1)
        seen.add(run)
    return places
