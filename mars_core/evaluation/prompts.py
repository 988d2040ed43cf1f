"""The prompts of the evaluations, from `assets/evaluation`: never in training data. No torch.

Where they come from, and their licences, is in the README beside them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mars_core.chat import Turn
from mars_core.config import check_choice
from mars_core.paths import assets_dir
from mars_core.training.prompt_file import read_lines

PromptSet = Literal["gsm8k-100", "humaneval", "mt-bench", "everyday", "development", "facts"]
FILES: dict[str, str] = {
    "gsm8k-100": "gsm8k_100.jsonl",
    "humaneval": "humaneval_164.jsonl.gz",
    "mt-bench": "mt_bench_80.jsonl",
    "everyday": "everyday_80.jsonl",
    "development": "development_40.jsonl",
    "facts": "facts_40.jsonl",
}
CODE_REQUEST = "Complete this Python function.\n\n```python\n{prompt}```"


@dataclass(frozen=True, slots=True)
class EvalPrompt:
    """One prompt.

    turns: user turns, to be answered one after the other. system: its own system prompt.
    category: where the set has some. expected: answers that are right; empty where it is free.
    """

    id: str
    turns: tuple[str, ...]
    system: str | None = None
    category: str | None = None
    expected: tuple[str, ...] = ()

    @property
    def first(self) -> list[Turn]:
        """The conversation up to the first answer."""
        opening = [] if self.system is None else [Turn(role="system", content=self.system)]
        return [*opening, Turn(role="user", content=self.turns[0])]

    def is_right(self, text: str) -> bool:
        """Whether one of the expected answers stands in `text` as a word."""
        return any(
            re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE)
            for answer in self.expected
        )


def evaluation_files() -> list[Path]:
    """All prompt files, for a check that training data has none of them."""
    return [assets_dir() / "evaluation" / name for name in FILES.values()]


def load_prompts(name: PromptSet) -> list[EvalPrompt]:
    """The prompts of a set, in their order."""
    check_choice("prompt set", name, PromptSet)
    rows = map(json.loads, read_lines(assets_dir() / "evaluation" / FILES[name]))
    return [as_prompt(row) for row in rows]


def as_prompt(row: dict[str, Any]) -> EvalPrompt:
    """The prompt of one line, whichever set it is of."""
    if "task_id" in row:  # HumanEval: code to be continued
        return EvalPrompt(row["task_id"], (CODE_REQUEST.format(prompt=row["prompt"]),))
    expected = row.get("expected", ())
    return EvalPrompt(
        id=str(row.get("question_id", row.get("id"))),
        turns=tuple(row["turns"]) if "turns" in row else (row["prompt"],),
        system=row.get("system"),
        category=row.get("category", row.get("topic")),
        expected=(expected,) if isinstance(expected, str) else tuple(expected),
    )
