"""When a text has got stuck: the one rule by which looping answers are told from good ones.

The same rule drops answers in distillation and excludes them from evaluation. No torch.
"""

from __future__ import annotations

RUN_WORDS = 6
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
