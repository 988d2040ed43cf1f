"""No evaluation prompt is in any training data of this repository."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import get_args

import pytest

from mars_core.evaluation.prompts import FILES, PromptSet, evaluation_files, load_prompts
from mars_core.paths import assets_dir
from mars_core.training.arithmetic import training_examples
from mars_core.training.everyday import expand, load_families
from mars_core.training.overlap import HeldOut, evaluation_texts
from mars_core.training.prompt_file import read_lines
from mars_core.ui.presets import load_presets

DATA = assets_dir() / "data"
SHORT_RUN = 4


@cache
def training_messages():
    """(role, text) of everything that training sees: data files, prompts, word problems."""
    rows = [json.loads(line) for file in chat_files() for line in read_lines(file)]
    messages = [(m["role"], m["content"]) for row in rows for m in row["messages"]]
    everyday = load_families()
    messages += [("user", text) for family in everyday["families"] for text in expand(family)]
    messages += [("user", text) for texts in everyday["follow_ups"].values() for text in texts]
    messages += [("system", text) for text in everyday["systems"]]
    problems = training_examples(seed=0, n=3000)
    return messages + [(m["role"], m["content"]) for row in problems for m in row["messages"]]


def chat_files():
    """Every data file of the repository that holds conversations."""
    return [path for path in sorted(DATA.iterdir()) if ".jsonl" in path.suffixes]


def asked():
    return [text for role, text in training_messages() if role == "user"]


def words(text):
    return re.findall(r"[\w']+", text.casefold())


def runs(text, length=SHORT_RUN):
    found = words(text)
    return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}


def test_no_data_file_is_forgotten():
    names = {path.name for path in chat_files()}
    assert {"distill.jsonl.gz", "facts.jsonl"} <= names
    folder = assets_dir() / "evaluation"
    prompts = {path.name for path in folder.iterdir() if ".jsonl" in path.suffixes}
    assert prompts == set(FILES.values()) == {path.name for path in evaluation_files()}
    assert set(get_args(PromptSet)) == set(FILES)


@pytest.mark.parametrize("path", evaluation_files(), ids=lambda path: path.name)
def test_no_evaluation_prompt_is_in_training_data(path):
    held_out = HeldOut(evaluation_texts(path))
    found = [text for _, text in training_messages() if held_out.overlaps(text)]
    assert not found


def test_the_check_would_find_one():
    prompt = load_prompts("gsm8k-100")[0].turns[0]
    held_out = HeldOut(evaluation_texts(evaluation_files()[0]))
    assert held_out.overlaps(f"Solve this: {prompt.upper()} Show your work.")


@pytest.mark.parametrize("name", ["everyday", "development"])
def test_everyday_prompts_share_no_wording_with_training(name):
    """Four words in a row would be a shared template."""
    known = set().union(*map(runs, asked()))
    shared = {
        prompt.id: sorted(found)
        for prompt in load_prompts(name)
        for turn in prompt.turns
        if (found := runs(turn) & known)
    }
    assert not shared


def test_everyday_prompts_share_no_topic_with_training():
    known = set().union(*(runs(text, 1) | runs(text, 2) for text in asked()))
    topics = {prompt.category.casefold() for prompt in load_prompts("everyday")}
    assert len(topics) == 80
    forms = {t: [tuple(f"{t}{end}".split()) for end in ("", "s", "es")] for t in topics}
    assert not [topic for topic, said in forms.items() if not known.isdisjoint(said)]


def test_facts_to_be_asked_are_not_taught():
    known = {" ".join(words(text)) for text in asked()}
    assert not [p.id for p in load_prompts("facts") if " ".join(words(p.turns[0])) in known]


def test_half_of_the_presets_are_new_to_the_shipped_adapter():
    known = {" ".join(words(text)) for text in asked()}
    new = [preset for preset in load_presets() if " ".join(words(preset.prompt)) not in known]
    assert len(new) >= 6
