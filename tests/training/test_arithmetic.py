"""Word problems: right sums, right English, and nothing of the benchmark in training."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_core.training.arithmetic import (
    TEMPLATES,
    answer_of,
    is_right,
    problems,
    sum_rows,
    training_examples,
)
from mars_core.training.arithmetic.expression import Quantity, equation, evaluate, holds
from mars_core.training.arithmetic.language import Scene, counted, plural, with_article
from mars_core.training.arithmetic.template import PEOPLE, draw, one_of, whole

SPLITS = ("train", "numbers", "templates")
BY_NAME = {template.name: template for template in TEMPLATES}
EQUATION = re.compile(r"((?:[$(]*[\d.]+\)*(?: [-+*/] )?)+) = (\$?[\d.]*\d)(?: remainder (\$?\d+))?")


@cache
def many(split, count=3000):
    return list(islice(problems(1, split), count))


def every():
    return [problem for split in SPLITS for problem in many(split)]


# --- the truth ----------------------------------------------------------------------------------


def checked(problem):
    """How many equations a solution has; each must be true, and so must the last line."""
    *lines, last = problem.solution.split("\n")
    for line in lines:
        ((left, result, remainder),) = EQUATION.findall(line)
        value = exact(left)
        if remainder:
            top, bottom = map(exact, left.split(" / "))
            assert (top // bottom, top % bottom) == (exact(result), exact(remainder)), line
            assert exact(remainder) > 0, line
        else:
            assert value == exact(result), line
    assert last == f"The answer is {problem.answer}."
    assert exact(problem.answer) == exact(result)
    return len(lines)


def exact(text):
    """The value of written-down arithmetic, by Python's own precedence."""
    fractions = re.sub(r"[\d.]+", lambda m: f"Fraction('{m[0]}')", text.replace("$", ""))
    return eval(fractions, {"Fraction": Fraction})


def test_every_line_of_every_solution_is_true():
    for problem in every():
        assert checked(problem) == problem.steps, problem.solution


def test_two_to_six_steps_all_occur():
    for split, wanted in (("train", {2, 3, 4, 5, 6}), ("templates", {2, 3, 4})):
        counts = Counter(problem.steps for problem in many(split))
        assert set(counts) == wanted
        assert min(counts.values()) > 50


def test_answers_are_natural():
    for problem in every():
        value = Decimal(problem.answer)
        assert 0 < value <= 2000
        assert -value.as_tuple().exponent in (0, 1, 2)
        assert answer_of(problem.solution) == value
        assert is_right(problem.solution, problem.answer)


def test_the_question_names_every_number_that_was_drawn():
    """Otherwise it could not be solved, and problems that differ would read the same."""
    for problem in every():
        told = problem.question.casefold()
        for quantity in problem.numbers.values():
            word = str(quantity).casefold()
            said = "twice" if quantity == Quantity(Fraction(2)) and "twice" in told else word
            assert re.search(rf"(?<![\d.]){re.escape(said)}(?![\d]|\.\d)", told), problem


# --- what is held out ---------------------------------------------------------------------------


def test_training_has_no_template_of_the_benchmark():
    held_out = {template.name for template in TEMPLATES if template.held_out}
    trained = {problem.template for problem in many("train")}
    assert len(trained) >= 30
    assert len(held_out) >= 5
    assert not held_out & trained
    assert {problem.template for problem in many("templates")} == held_out
    assert {problem.template for problem in many("numbers")} == trained
    assert trained | held_out == set(BY_NAME)


def in_band(problem):
    bands = BY_NAME[problem.template].bands()
    return [name for name, value in problem.numbers.items() if value in bands[name]]


def test_training_has_no_number_of_the_benchmark_in_its_place():
    assert not any(in_band(problem) for problem in many("train"))
    assert all(in_band(problem) for problem in many("numbers"))
    assert all(any(BY_NAME[name].bands().values()) for name in BY_NAME)


def test_the_band_is_about_a_fifth_in_a_row_and_elsewhere_in_every_place():
    numbers = whole(10, 59)
    places = {place: numbers.band(place) for place in map(str, range(500))}
    for band in places.values():
        values = sorted(quantity.value for quantity in band)
        assert values == list(range(int(values[0]), int(values[0]) + 10))
    assert set().union(*places.values()) == set(numbers.values)
    assert not one_of(1, 2, 3, 4, 5, 6, 7).band("any")


def test_no_question_twice_and_none_in_two_splits():
    questions = [problem.question for problem in every()]
    assert len(set(questions)) == len(questions)


def test_the_same_seed_gives_the_same_problems():
    first, again, other = ([p.question for p in islice(problems(s), 50)] for s in (3, 3, 4))
    assert first == again
    assert not set(first) & set(other)


def test_training_examples_are_chat_rows():
    rows = training_examples(seed=5, n=100)
    assert len(rows) == 100
    for row, problem in zip(rows, problems(5), strict=False):
        question, solution = row["messages"]
        assert question == {"role": "user", "content": problem.question}
        assert solution == {"role": "assistant", "content": problem.solution}
        assert row["finished"] is True
        assert row["template"] == problem.template


def test_sums_are_true():
    rows = sum_rows(seed=1, n=200)
    assert rows == sum_rows(seed=1, n=200) != sum_rows(seed=2, n=200)
    kinds = Counter()
    for row in rows:
        asked, solved = (message["content"].splitlines() for message in row["messages"])
        assert [line.split(" = ")[0] for line in solved] == asked[1:]
        for line in solved:
            left, right = line.replace("$", "").split(" = ")
            quotient, _, rest = right.partition(" remainder ")
            divisor = int(left.split(" / ")[-1]) if rest else 1
            assert exact(left) * divisor == int(quotient) * divisor + int(rest or 0), line
            assert 0 <= int(rest or 0) < max(divisor, 1)
            kinds[re.sub(r"\d+", "n", line)] += 1
    assert len(kinds) == 7
    assert min(kinds.values()) > 200


# --- the English --------------------------------------------------------------------------------


def nouns_of(template):
    """The nouns that a template counts: those it draws, and those written after a colon."""
    texts = [text for wordings in (*template.story, template.ask) for text in wordings]
    texts += [text for step in template.steps for text in step.tellings]
    written = {noun for text in texts for noun in re.findall(r"\{[\w=]+:(\w+)\}", text)}
    return {word for noun in written for word in template.words.get(noun, (noun,))}


def test_numbers_agree_with_their_nouns():
    singulars = 0
    for problem in every():
        text = f"{problem.question} {problem.solution}"
        for noun in nouns_of(BY_NAME[problem.template]):
            if plural(noun) == noun:  # fish
                continue
            assert not re.search(rf"(?<![\d.$])1 {plural(noun)}\b", text), text
            # "30 adult tickets" counts tickets
            numbers = re.findall(rf"(?<![\d.])([\d.]+) {noun}\b(?! ticket)", text)
            assert set(numbers) <= {"1"}, (noun, text)
            singulars += len(numbers)
    assert singulars > 20


def test_sentences_are_whole():
    for problem in every():
        text = f"{problem.question}\n{problem.solution}"
        assert not re.search(r"[{}]|  |\bnone\b|(?<![$\d.])1 are\b", text), text
        assert problem.question.endswith("?")
        for line in text.split("\n"):
            assert re.match(r"[A-Z\d$]", line), line
            assert line[-1] in ".?", line
            assert not re.search(r"[.?!] [a-z]", line), line
        for article, word in re.findall(r"\b([Aa]n?) ([a-z]+)", text):
            assert (article.lower() == "an") == (word[0] in "aeiou" or word == "hour"), text


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.name)
def test_every_template_is_worded_in_several_ways(template):
    split = "templates" if template.held_out else "train"
    drawn = [draw(template, split, random.Random(seed)) for seed in range(60)]
    shapes = defaultdict(int)
    for problem in drawn:
        shapes[re.sub(r"[\d.$%]+|[A-Z][a-z]+", "_", problem.question)] += 1
    assert len(shapes) >= 4
    assert len({p.topic for p in drawn}) == 1


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("apple", "apples"),
        ("box", "boxes"),
        ("bush", "bushes"),
        ("berry", "berries"),
        ("day", "days"),
        ("loaf", "loaves"),
        ("child", "children"),
        ("bar of soap", "bars of soap"),
        ("pair of skates", "pairs of skates"),
        ("tomato plant", "tomato plants"),
        ("goldfish bowl", "goldfish bowls"),
        ("fish", "fish"),
    ],
)
def test_plurals(noun, expected):
    assert plural(noun) == expected


def test_counts_and_articles():
    one, many_, part = Quantity(Fraction(1)), Quantity(Fraction(24)), Quantity(Fraction(5, 2))
    assert counted(one, "box") == "1 box"
    assert counted(many_, "box") == "24 boxes"
    assert counted(part, "hour") == "2.5 hours"
    nouns = ("apple", "box", "hour", "uniform", "used car", "old clock")
    assert [with_article(noun) for noun in nouns] == [
        "an apple", "a box", "an hour", "a uniform", "a used car", "an old clock",
    ]  # fmt: skip


def test_slots():
    mia, ben = (
        next(p for p in PEOPLE if p.name == "Mia"),
        next(p for p in PEOPLE if p.name == "Ben"),
    )
    numbers = {"n": Quantity(Fraction(3)), "p": Quantity(Fraction(9, 2), money=True)}
    scene = Scene(mia, ben, {"thing": "orange"}, numbers, "3 * 1 = 3", Quantity(Fraction(3)))
    told = scene.tell("{name} has {n:thing} at {p}. {he} eats {a thing}, {n times} {his} {things}.")
    assert told == "Mia has 3 oranges at $4.50. She eats an orange, 3 times her oranges."
    assert scene.tell("{n} {n is} {=:thing} for {other}.") == "3 are 3 * 1 = 3 oranges for Ben."
    with pytest.raises(KeyError):
        scene.tell("{nobody}")


# --- arithmetic as it is written ----------------------------------------------------------------

KNOWN = {
    "a": Quantity(Fraction(47)),
    "b": Quantity(Fraction(6)),
    "p": Quantity(Fraction(7, 2), money=True),
    "part": Quantity(Fraction(2, 3), text="two thirds", over=3),
    "off": Quantity(Fraction(1, 5), text="20%", over=100),
}


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("a + b", "47 + 6 = 53"),
        ("b * p", "6 * $3.50 = $21"),
        ("p / b * b", "$3.50 / 6 * 6 = $3.50"),
        ("p * b / p", "$3.50 * 6 / $3.50 = 6"),
        ("a // b", "47 / 6 = 7 remainder 5"),
        ("b * part", "6 * 2 / 3 = 4"),
        ("p * off", "$3.50 * 20 / 100 = $0.70"),
        ("a - (b + 1)", "47 - (6 + 1) = 40"),
        ("(a + 1) / b", "(47 + 1) / 6 = 8"),
        ("a - b - 1", "47 - 6 - 1 = 40"),
        ("b / 4", "6 / 4 = 1.5"),
    ],
)
def test_equations(source, written):
    assert equation(source, KNOWN) == written


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(1, 50)), min_size=1, max_size=4))
def test_brackets_are_where_they_are_needed(parts):
    """A nested expression, read back from how it was written, has the value it had."""
    source = "a"
    for sign, number in parts:
        source = f"({source}) {sign} {number}" if number % 2 else f"{number} {sign} ({source})"
    left, _, _ = equation(source, KNOWN).partition(" = ")
    assert exact(left) == evaluate(source, KNOWN).value


def test_conditions():
    assert holds("a % b > 0", KNOWN)
    assert holds("a >= b * 7", KNOWN)
    assert not holds("a < b", KNOWN)
    with pytest.raises(ValueError, match="unknown arithmetic"):
        evaluate("a ** b", KNOWN)


# --- reading answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 60.", 60),
        ("3 + 4 = 7\nThe answer is 7", 7),
        ("The answer is 5. No wait. The answer is 6.", 6),
        ("the answer is: $1,250.50.", Decimal("1250.5")),
        ("The answer is **12**.", 12),
        ("The answer is about 2.5 hours.", Decimal("2.5")),
        ("The answer is -3.", -3),
        ("The final answer is \\(8\\).", 8),
        ("The answer is unclear. 7 apples.", None),
        ("The answer is", None),
        ("So it is 60.", None),
        ("", None),
    ],
)
def test_answer_of(text, number):
    assert answer_of(text) == (None if number is None else Decimal(number))


def test_is_right_compares_numbers():
    assert is_right("The answer is $12.50.", "12.5")
    assert not is_right("The answer is 12.", "12.5")
    assert not is_right("I do not know.", "12.5")
