"""Whether training data contains what a model is evaluated on. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mars_core.training.prompt_file import read_tasks

RUN_WORDS = 13
_WORD = re.compile(r"\w+")


class HeldOut:
    """Texts that training data must not overlap.

    A text overlaps one of them when they share a run of 13 words, whatever their case and
    punctuation; one with fewer words only when it is the same as a whole.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[str] = set()
        for text in texts:
            self._runs.update(_runs(text))

    def overlaps(self, text: str) -> bool:
        """Whether `text` contains one of them, or a long enough part of one."""
        return not self._runs.isdisjoint(_runs(text))


def _runs(text: str) -> Iterator[str]:
    """Every run of 13 words; of a shorter text, all of it, marked as a whole."""
    words = _WORD.findall(text.casefold())
    if len(words) < RUN_WORDS:
        if words:
            yield " ".join(["", *words, ""])
        return
    for start in range(len(words) - RUN_WORDS + 1):
        yield " ".join(words[start : start + RUN_WORDS])


def evaluation_texts(path: Path) -> list[str]:
    """What the prompts of an evaluation file say (`prompt`, `turns` or `messages` a line)."""
    tasks, _ = read_tasks(path)
    return [
        text
        for task in tasks
        for text in (*(message.content for message in task.opening), *task.turns)
    ]
