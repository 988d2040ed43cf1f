"""Data made to order, and the hand-written answers: repeatable, varied, and right."""

from __future__ import annotations

import calendar
import contextlib
import gzip
import io
import json
import re
from collections import Counter
from fractions import Fraction

import pytest

from mars_core.errors import MarsError
from mars_core.paths import assets_dir
from mars_core.training.arithmetic import training_examples
from mars_core.training.data import parse_row
from mars_core.training.everyday import everyday_prompts, expand, load_families
from mars_core.training.make import MakeConfig, make, write_rows
from mars_core.training.prompt_file import read_lines, read_tasks
from mars_core.training.repetition import is_looping

DATA = assets_dir() / "data"
FACTS = [json.loads(line) for line in read_lines(DATA / "facts.jsonl")]
PLUS = {"plus": "+", "minus": "-", "times": "*", "divided by": "/"}


# --- everyday prompts ---------------------------------------------------------------------------


def test_everyday_prompts_are_many_varied_and_repeatable():
    rows = everyday_prompts(seed=0, n=4000)
    first = [row["turns"][0] if "turns" in row else row["prompt"] for row in rows]
    assert len({text.casefold() for text in first}) == 4000
    turns = Counter(len(row.get("turns", "1")) for row in rows)
    assert 2400 < turns[1] < 2800
    assert 950 < turns[2] < 1300
    assert turns[3] > 200
    assert 850 < sum("system" in row for row in rows) < 1150
    assert rows == everyday_prompts(seed=0, n=4000)
    assert rows != everyday_prompts(seed=1, n=4000)


def test_few_everyday_prompts_are_of_all_kinds():
    kinds = Counter(row["kind"] for row in everyday_prompts(seed=3, n=300))
    assert len(kinds) == len(load_families()["families"])
    assert max(kinds.values()) <= 2 * min(kinds.values())


def test_every_everyday_prompt_reads_well():
    families = load_families()
    for family in families["families"]:
        for text in expand(family):
            assert not re.search(r"\{(x|lang|form)\}|^ | $", text), text
            if family["kind"] != "corrections":  # wrong on purpose
                assert not re.search(
                    r"\b[Aa] (?:[aei]|o(?!ne))|\b[Aa]n [^aeiouhf]|\b[Aa]n f[^-]", text
                ), text
            assert text[0].isupper(), text
        assert family["follow_ups"] in families["follow_ups"]


def test_there_is_an_end_to_everyday_prompts():
    with pytest.raises(MarsError, match="everyday prompts, not 1000000"):
        everyday_prompts(seed=0, n=10**6)


# --- made files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_made_files_are_the_same_byte_for_byte(tmp_path, name):
    config = MakeConfig("everyday", tmp_path / name, n=50, seed=4)
    assert make(config) == 50
    first = config.out.read_bytes()
    make(config)
    assert config.out.read_bytes() == first
    tasks, duplicates = read_tasks(config.out)
    assert (len(tasks), duplicates) == (50, 0)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_made_word_problems_are_training_rows(tmp_path):
    config = MakeConfig("arithmetic", tmp_path / "a.jsonl.gz", n=20, seed=7)
    make(config)
    with gzip.open(config.out, "rt") as file:
        rows = [json.loads(line) for line in file]
    assert rows == training_examples(7, 20)
    assert all(parse_row(row).finished for row in rows)


@pytest.mark.parametrize(
    ("what", "out", "n", "words"),
    [
        ("poems", "a.jsonl", 5, "what to make"),
        ("everyday", "a.jsonl", 0, "n is 0"),
        ("everyday", "nowhere/a.jsonl", 5, "cannot be written"),
    ],
)
def test_bad_settings_are_one_line(tmp_path, what, out, n, words):
    with pytest.raises(MarsError, match=words):
        make(MakeConfig(what, tmp_path / out, n=n))


# --- start data ---------------------------------------------------------------------------------


def test_start_data_can_be_trained_on_and_does_not_loop():
    rows = [json.loads(line) for line in read_lines(DATA / "distill.jsonl.gz")]
    assert len(rows) > 2500
    chats = [parse_row(row) for row in rows]
    assert not any(is_looping(chat.answer) for chat in chats)
    assert 0.3 < sum(chat.finished for chat in chats) / len(chats) < 0.7
    assert len({row["id"] for row in rows}) == len(rows)
    assert {task.key for task in read_tasks(DATA / "distill.jsonl.gz")[0]} == {
        row["id"] for row in rows
    }


def test_start_data_is_packed_repeatably(tmp_path):
    rows = [json.loads(line) for line in read_lines(DATA / "distill.jsonl.gz")]
    write_rows(tmp_path / "again.jsonl.gz", rows)
    again = gzip.decompress((tmp_path / "again.jsonl.gz").read_bytes())
    assert again == gzip.decompress((DATA / "distill.jsonl.gz").read_bytes())


# --- hand-written answers -----------------------------------------------------------------------


def answers():
    """(question, answer) of every turn of the facts."""
    for row in FACTS:
        turns = [m for m in row["messages"] if m["role"] != "system"]
        for question, answer in zip(turns[::2], turns[1::2], strict=True):
            assert (question["role"], answer["role"]) == ("user", "assistant")
            yield question["content"], answer["content"]


def test_facts_are_short_friendly_rows():
    assert len(FACTS) > 400
    for row in FACTS:
        assert parse_row(row).finished
    asked = [json.dumps(row["messages"][:-1]).casefold() for row in FACTS]
    assert len(set(asked)) == len(asked)
    for question, answer in answers():
        assert question == question.strip()
        assert answer == answer.strip()
        assert len(answer) < 400
        assert not is_looping(answer)
        assert "```" in answer or not re.search(r"  |\.\.|\?\?| ,| \.", answer), answer


def test_sums_in_facts_are_right():
    checked = 0
    for _, answer in answers():
        answer = re.sub("|".join(PLUS), lambda word: PLUS[word[0]], answer)
        for left, right in re.findall(r"(\d[\d +*/-]*?) (?:=|is) (\d+)(?!\d)", answer):
            if re.search(r"[-+*/]", left):
                assert eval(left, {}) == int(right), answer
                checked += 1
    assert checked >= 35


UNITS = {
    "kilometer": ("length", 1000), "meter": ("length", 1), "centimeter": ("length", "1/100"),
    "millimeter": ("length", "1/1000"), "inch": ("imperial", 1), "foot": ("imperial", 12),
    "yard": ("imperial", 36), "kilogram": ("mass", 1000), "gram": ("mass", 1),
    "liter": ("volume", 1), "milliliter": ("volume", "1/1000"), "week": ("time", 604800),
    "day": ("time", 86400), "hour": ("time", 3600), "minute": ("time", 60), "second": ("time", 1),
    "dollar": ("money", 100), "cent": ("money", 1), "byte": ("data", 8), "bit": ("data", 1),
    "ounce": ("weight", 1), "pound": ("weight", 16),
}  # fmt: skip


def unit(word):
    known = {"feet": "foot", "inches": "inch"}
    kind, size = UNITS[known.get(word, word.removesuffix("s"))]
    return kind, Fraction(size)


def test_conversions_in_facts_are_right():
    checked = 0
    for question, answer in answers():
        there = re.fullmatch(r"There are ([\d,]+) (\w+) in (?:an?|one|two) (\w+)\.", answer)
        are = re.fullmatch(r"([\d.]+) (\w+) are ([\d,.]+) (\w+)\.", answer)
        if there and there[2] != "days" and there[3] not in ("year", "deck"):
            factor = 2 if " two " in answer else 1
            (kind, small), (same, large) = unit(there[2]), unit(there[3])
            assert kind == same, answer
            assert int(there[1].replace(",", "")) * small == factor * large, answer
        elif are and question.startswith("Convert"):
            (kind, left), (same, right) = unit(are[2]), unit(are[4])
            assert kind == same, answer
            value = Fraction(are[3].replace(",", ""))
            assert Fraction(are[1]) * left == value * right, answer
        else:
            continue
        checked += 1
    assert checked >= 20


def test_code_in_facts_runs_and_does_what_it_says():
    names = {}
    blocks = 0
    for _, answer in answers():
        for block in re.findall(r"```python\n(.*?)```", answer, re.DOTALL):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(block, names)
            for line, printed in zip(
                re.findall(r"# (.+)", block), output.getvalue().splitlines(), strict=False
            ):
                assert printed == line
            blocks += 1
    assert blocks >= 20
    assert names["factorial"](5) == 120
    assert names["is_prime"](97)
    assert not names["is_prime"](91)
    assert not names["is_prime"](1)
    assert names["is_palindrome"]("Level")
    assert names["to_fahrenheit"](100) == 212
    assert names["unique"]([1, 2, 1]) == [1, 2]
    assert names["largest"]([3, 9, 4]) == 9
    assert names["count_vowels"]("Banana") == 3
    assert names["reverse"]("abc") == "cba"
    assert (names["add"](2, 3), names["double"](4), names["is_even"](3)) == (5, 8, False)
    assert (names["total"]([1, 2]), names["average"]([1, 2]), names["larger"](2, 7)) == (3, 1.5, 7)


def test_calendar_facts_are_right():
    days, months = list(calendar.day_name), list(calendar.month_name)[1:]
    checked = 0
    for _, answer in answers():
        for word, first, second in re.findall(r"(After|Before) (\w+) comes (\w+)\.", answer):
            circle = days if first in days else months
            if first in circle:
                step = 1 if word == "After" else -1
                assert circle[(circle.index(first) + step) % len(circle)] == second
                checked += 1
    assert checked >= 17
