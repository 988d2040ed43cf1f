"""Word problems that compare: more, fewer, times as many, older."""

from __future__ import annotations

from mars_core.training.arithmetic.template import Template, one_of, step, whole

TEMPLATES = [
    Template(
        name="some more than another",
        topic="comparing",
        numbers={"n": whole(8, 90), "k": whole(3, 40)},
        words={"thing": ("sticker", "marble", "book", "shell", "stamp", "toy car")},
        story=[
            (
                "{name} has {n:thing}. {other} has {k} more than that.",
                "{name} owns {n:thing}, and {other} owns {k} more than {name}.",
                "{other} has {k} more {things} than {name}, who has {n}.",
            ),
        ],
        ask=("How many do they have together?", "How many {things} do the two have in all?"),
        steps=[
            step("more = n + k", "{other} has {=:thing}.", "For {other} that is {=}."),
            step("total = n + more", "Together they have {=}.", "In all: {=:thing}."),
        ],
    ),
    Template(
        name="times as many, and fewer",
        topic="comparing",
        numbers={"n": whole(5, 40), "k": one_of(2, 3, 4, 5), "m": whole(2, 20)},
        words={"thing": ("apple", "point", "ticket", "flower", "mushroom", "plum")},
        story=[
            (
                "{name} has {n:thing}. {other} has {k times} as many.",
                "{other} has {k times} as many {things} as {name}, who has {n}.",
            ),
            (
                "A third child has {m} fewer than {other}.",
                "A friend of theirs has {m} fewer than {other}.",
            ),
        ],
        ask=("How many do all three have together?", "How many {things} are there in all?"),
        steps=[
            step("more = k * n", "{other} has {=:thing}.", "For {other} that is {=}."),
            step("third = more - m", "The third has {=}.", "{m} fewer is {=}."),
            step("two = n + more", "{name} and {other} have {=}.", "The first two have {=}."),
            step("total = two + third", "All three have {=}.", "Together that is {=:thing}."),
        ],
    ),
    Template(
        name="ages in some years",
        topic="comparing",
        numbers={"n": whole(4, 18), "k": one_of(2, 3, 4), "y": whole(2, 15)},
        words={"kin": ("mother", "uncle", "aunt", "father", "teacher")},
        story=[
            (
                "{name} is {n} years old. {His} {kin} is {k times} as old.",
                "{name} is {n}, and {his} {kin} is {k times} as old as {he} is.",
            ),
        ],
        ask=(
            "How old will both be together in {y} years?",
            "What will be the sum of their ages in {y} years?",
        ),
        steps=[
            step("old = k * n", "The {kin} is {=} years old.", "The {kin}'s age is {=}."),
            step("a = n + y", "In {y} years {name} will be {=}.", "Then {name} will be {=}."),
            step("b = old + y", "The {kin} will be {=}.", "And the {kin} will be {=}."),
            step("total = a + b", "Together they will be {=}.", "The sum is {=}."),
        ],
        where=["old > 19", "old < 66"],
    ),
    Template(
        name="who does more",
        topic="comparing",
        numbers={"a": whole(6, 40), "d": whole(3, 9), "b": whole(4, 30), "e": whole(2, 8)},
        words={"thing": ("push-up", "lap", "puzzle", "sit-up")},
        story=[
            (
                "{name} does {a:thing} a day for {d} days. {other} does {b} a day for {e} days.",
                "{name} does {a:thing} a day for {d} days, {other} does {b} a day for {e} days.",
            ),
        ],
        ask=(
            "How many more {things} does {name} do than {other}?",
            "By how many {things} is {name} ahead of {other}?",
        ),
        steps=[
            step("first = d * a", "{name} does {=:thing}.", "For {name} it is {=}."),
            step("second = e * b", "{other} does {=:thing}.", "For {other} it is {=}."),
            step("more = first - second", "The difference is {=}.", "{name} is ahead by {=}."),
        ],
        where=["a != b"],
    ),
    Template(
        name="two growing plants",
        topic="comparing",
        numbers={
            "a": whole(4, 30),
            "g": whole(3, 9),
            "b": whole(3, 25),
            "f": whole(1, 6),
            "w": whole(3, 12),
        },
        words={"plant": ("sunflower", "bean plant", "bamboo plant", "corn plant")},
        story=[
            (
                "One {plant} is {a} centimeters tall and grows {g} a week. Another is {b} "
                "centimeters tall and grows {f} a week.",
                "{name}'s {plant} is {a} centimeters tall and grows {g} centimeters a week. "
                "{other}'s is {b} centimeters tall and grows {f} a week.",
            ),
        ],
        ask=(
            "How many centimeters taller is the first one after {w} weeks?",
            "After {w} weeks, how many centimeters is the first ahead of the second?",
        ),
        steps=[
            step("grown = w * g", "The first grows {=} centimeters.", "In {w} weeks: {=}."),
            step("first = a + grown", "Then it is {=} centimeters tall.", "It reaches {=}."),
            step("other_grown = w * f", "The second grows {=}.", "The other one grows {=}."),
            step("second = b + other_grown", "Then it is {=} tall.", "It reaches {=}."),
            step("more = first - second", "The difference is {=}.", "So it is {=} taller."),
        ],
        where=["g > f"],
    ),
    Template(
        name="points in a game",
        topic="comparing",
        numbers={"x": whole(4, 18), "y": whole(5, 25), "z": whole(2, 12), "they": whole(20, 80)},
        words={"team": ("Falcons", "Bears", "Comets", "Dolphins", "Eagles")},
        story=[
            (
                "The {team} make {x} baskets of 3 points, {y} of 2 points and {z} of 1 point.",
                "In a game the {team} score {x} times 3 points, {y} times 2 points and {z} times "
                "1 point.",
            ),
            ("The other team scores {they} points.", "Their opponents get {they} points."),
        ],
        ask=("By how many points do the {team} win?", "How many points ahead are the {team}?"),
        steps=[
            step("threes = x * 3", "The baskets of 3 give {=} points.", "Threes: {=}."),
            step("twos = y * 2", "The baskets of 2 give {=} points.", "Twos: {=}."),
            step("both = threes + twos", "Together that is {=}.", "Both make {=}."),
            step("total = both + z", "With the single points it is {=}.", "Adding the ones: {=}."),
            step("ahead = total - they", "They win by {=}.", "The lead is {=}."),
        ],
    ),
    Template(
        name="a count on three days",
        topic="comparing",
        numbers={"n": whole(12, 60), "k": whole(4, 20), "t": one_of(2, 3)},
        words={"thing": ("picture", "letter", "bird", "photo", "sketch")},
        story=[
            (
                "On Friday {name} counts {n:thing}, and on Saturday {k} fewer.",
                "{name} counts {n:thing} on Friday and {k} fewer on Saturday.",
            ),
            (
                "On Sunday it is {t times} as many as on Saturday.",
                "Sunday brings {t times} as many as Saturday.",
            ),
        ],
        ask=("How many is that in all?", "How many {things} are there in the three days?"),
        steps=[
            step("saturday = n - k", "On Saturday there are {=}.", "Saturday: {=:thing}."),
            step("sunday = t * saturday", "On Sunday there are {=}.", "Sunday: {=:thing}."),
            step("two = n + saturday", "Friday and Saturday: {=}.", "The first two days: {=}."),
            step("total = two + sunday", "In all there are {=}.", "All three days: {=:thing}."),
        ],
    ),
    Template(
        name="evening out",
        topic="comparing",
        held_out=True,
        numbers={"a": whole(20, 80), "b": whole(5, 40), "c": whole(5, 40)},
        words={"thing": ("walnut", "token", "postcard", "chestnut")},
        story=[
            (
                "{name} has {a:thing}, {other} has {b} and their cousin has {c}.",
                "Three cousins have {a}, {b} and {c:thing}. {name} is the one with {a}.",
            ),
            ("They want to have the same number each.", "They share so that all have the same."),
        ],
        ask=("How many must {name} give away?", "How many {things} does {name} hand over?"),
        steps=[
            step("two = a + b", "The first two have {=}."),
            step("all = two + c", "Together they have {=:thing}."),
            step("each = all / 3", "Each should have {=}."),
            step("gives = a - each", "{name} gives away {=}."),
        ],
        where=["a > b", "a > c"],
    ),
]
