"""Word problems about fractions and percentages."""

from __future__ import annotations

from mars_core.training.arithmetic.template import (
    Template,
    dollars,
    one_of,
    percent,
    share,
    step,
    whole,
)

TEMPLATES = [
    Template(
        name="giving away a share",
        topic="shares",
        numbers={
            "n": whole(12, 96, 2),
            "part": share("half", "a third", "two thirds", "a quarter", "a fifth"),
            "k": whole(2, 12),
        },
        words={"thing": ("marble", "grape", "sticker", "walnut", "shell", "cherry")},
        story=[
            ("{name} has {n:thing}.", "{name} has collected {n:thing}."),
            (
                "{He} gives {part} of them to {other} and loses {k}.",
                "{other} gets {part} of them, and {k} get lost.",
            ),
        ],
        ask=("How many {things} does {name} have left?", "How many does {name} still have?"),
        steps=[
            step("gives = n * part", "{other} gets {=:thing}.", "{part} of {n} is {=}."),
            step("left = n - gives", "{name} then has {=}.", "That leaves {=:thing}."),
            step("rest = left - k", "After the loss it is {=}.", "Without the lost ones: {=}."),
        ],
    ),
    Template(
        name="a share of the rest",
        topic="shares",
        numbers={
            "n": whole(20, 240, 4),
            "first": share("half", "a third", "a quarter", "a fifth"),
            "second": share("half", "a third", "two thirds", "a quarter"),
        },
        words={"group": ("student", "guest", "visitor", "club member", "employee")},
        story=[
            (
                "Of {n:group}, {first} choose soup.",
                "There are {n:group} at lunch, and {first} of them take soup.",
            ),
            (
                "Of the others, {second} choose salad. Everyone else takes a sandwich.",
                "{second} of the rest want salad, and all the others want a sandwich.",
            ),
        ],
        ask=("How many sandwiches are needed?", "How many {groups} have a sandwich?"),
        steps=[
            step("soup = n * first", "Soup goes to {=:group}.", "{first} of {n} is {=}."),
            step("others = n - soup", "That leaves {=:group}.", "The others are {=}."),
            step("salad = others * second", "Salad goes to {=}.", "{second} of those is {=}."),
            step("rest = others - salad", "Sandwiches go to {=}.", "What remains is {=}."),
        ],
    ),
    Template(
        name="a percentage and the rest",
        topic="shares",
        numbers={"n": whole(20, 400, 20), "part": percent(5, 10, 15, 20, 25, 30, 40, 60, 75)},
        words={"who": ("student", "worker", "guest", "tourist", "runner")},
        story=[
            (
                "Of the {n:who} at an event, {part} came by bus.",
                "{n:who} came to a festival, {part} of them by bus.",
            ),
        ],
        ask=("How many did not come by bus?", "How many {whos} came some other way?"),
        steps=[
            step("bus = n * part", "{part} of {n} is {=}.", "By bus came {=:who}."),
            step("rest = n - bus", "The others are {=}.", "That leaves {=:who}."),
        ],
    ),
    Template(
        name="three colors",
        topic="shares",
        numbers={
            "n": whole(24, 120, 4),
            "a": share("a third", "a quarter", "a fifth"),
            "b": share("a quarter", "a third", "half", "two fifths"),
        },
        words={"thing": ("bead", "tile", "balloon", "button", "tulip", "fish")},
        story=[
            (
                "A box holds {n:thing}. {a} of them are red and {b} are blue.",
                "There are {n:thing}: {a} of them red, {b} of them blue.",
                "{name} counts {n:thing}. {a} of all are red, {b} of all are blue.",
            ),
            ("The rest are yellow.", "All the others are yellow."),
        ],
        ask=("How many are yellow?", "How many yellow {things} are there?"),
        steps=[
            step("red = n * a", "Red: {=}.", "The red ones are {=}."),
            step("blue = n * b", "Blue: {=}.", "The blue ones are {=}."),
            step("both = red + blue", "Red and blue together: {=}.", "That makes {=}."),
            step("yellow = n - both", "So {=} are yellow.", "The rest is {=}."),
        ],
    ),
    Template(
        name="a price that rises",
        topic="shares",
        numbers={"p": dollars(10, 200, 10), "up": percent(5, 10, 20, 25, 30, 50), "n": whole(2, 9)},
        words={"thing": ("ticket", "lesson", "season pass", "dictionary", "helmet")},
        story=[
            (
                "{a thing} used to cost {p}. The price went up by {up}.",
                "The price of {a thing} was {p} and has risen by {up}.",
            ),
        ],
        ask=("What do {n:thing} cost now?", "How much does {name} pay for {n} of them now?"),
        steps=[
            step("rise = p * up", "The rise is {=}.", "{up} of {p} is {=}."),
            step("new = p + rise", "One now costs {=}.", "The new price is {=}."),
            step("total = n * new", "{n:thing} cost {=}.", "For {n} that is {=}."),
        ],
    ),
    Template(
        name="a vegetable bed",
        topic="shares",
        numbers={
            "a": whole(4, 20),
            "b": whole(3, 16),
            "part": share("half", "a third", "two thirds", "a quarter", "three quarters"),
        },
        words={"crop": ("carrots", "potatoes", "beans", "lettuce", "peas")},
        story=[
            (
                "A garden is {a} meters long and {b} meters wide.",
                "{name}'s garden measures {a} meters by {b} meters.",
            ),
            (
                "{part} of it is planted with {crop}, the rest is lawn.",
                "On {part} of the area grow {crop}. Everything else is lawn.",
            ),
        ],
        ask=(
            "How many square meters of lawn are there?",
            "How many square meters are lawn?",
        ),
        steps=[
            step(
                "area = a * b",
                "The area is {=} square meters.",
                "It has {=} square meters.",
            ),
            step("bed = area * part", "The {crop} take {=}.", "{part} of {area} is {=}."),
            step("lawn = area - bed", "The lawn has {=} square meters.", "That leaves {=}."),
        ],
        where=["a >= b"],
    ),
    Template(
        name="a book in parts",
        topic="shares",
        numbers={
            "pages": whole(60, 360, 12),
            "part": share("a third", "a quarter", "a fifth"),
            "k": whole(5, 30),
        },
        words={"book": ("novel", "travel guide", "comic", "biography")},
        story=[
            (
                "{name} reads {a book} of {pages} pages.",
                "{a book} has {pages} pages, and {name} wants to read it.",
            ),
            (
                "On Monday {he} reads {part} of it, and on Tuesday {k} pages more than on Monday.",
                "{He} reads {part} of it on Monday. On Tuesday {he} manages {k} pages more than "
                "that.",
            ),
        ],
        ask=("How many pages are left?", "How many pages does {he} still have to read?"),
        steps=[
            step("monday = pages * part", "On Monday {he} reads {=} pages.", "Monday: {=} pages."),
            step("tuesday = monday + k", "On Tuesday {he} reads {=}.", "Tuesday: {=} pages."),
            step("both = monday + tuesday", "Together that is {=} pages.", "Both days: {=}."),
            step("left = pages - both", "{=:page} {left is} left.", "{=} {left is} left."),
        ],
    ),
    Template(
        name="sale and coupon",
        topic="shares",
        numbers={
            "p": dollars(20, 300, 10),
            "off": percent(10, 20, 25, 40, 50),
            "c": dollars(2, 15),
        },
        words={"thing": ("coat", "phone", "table", "bed", "watch", "tent")},
        story=[
            (
                "{a thing} for {p} is on sale with {off} off.",
                "{name} sees {a thing} that costs {p}, and today it is {off} off.",
            ),
            (
                "A coupon takes off another {c}.",
                "{He} also has a coupon worth {c}.",
            ),
        ],
        ask=("What does {name} pay for it?", "How much is the {thing} in the end?"),
        steps=[
            step("less = p * off", "The discount is {=}.", "{off} of {p} is {=}."),
            step("sale = p - less", "On sale it costs {=}.", "That makes {=}."),
            step("pays = sale - c", "With the coupon it is {=}.", "The coupon leaves {=}."),
        ],
    ),
    Template(
        name="a farmer's harvest",
        topic="shares",
        held_out=True,
        numbers={
            "n": whole(60, 480, 12),
            "part": share("half", "a third", "two thirds", "a quarter"),
            "bad": whole(3, 24),
            "k": one_of(2, 3, 4, 5, 6),
        },
        words={"fruit": ("pear", "melon", "pumpkin", "peach", "cabbage")},
        story=[
            ("A farmer picks {n:fruit}.", "The harvest of a farm is {n:fruit}."),
            (
                "{part} of them are sold at the market, and {bad} of the others are bad.",
                "At the market, {part} of them are sold. Of the rest, {bad} are bad.",
            ),
            ("What is left goes into baskets of {k}.", "The good ones are put in baskets of {k}."),
        ],
        ask=("How many baskets are there?", "How many baskets does that fill?"),
        steps=[
            step("sold = n * part", "At the market {=} are sold."),
            step("rest = n - sold", "That leaves {=:fruit}."),
            step("good = rest - bad", "Of those {=} are good."),
            step("baskets = good / k", "They fill {=:basket}."),
        ],
    ),
    Template(
        name="a phone's battery",
        topic="shares",
        held_out=True,
        numbers={
            "full": whole(600, 1200, 60),
            "used": percent(20, 25, 40, 50, 60, 75),
            "more": whole(20, 120, 10),
        },
        story=[
            (
                "A full battery of {name}'s phone lasts {full} minutes.",
                "With a full battery, {name}'s phone runs for {full} minutes.",
            ),
            (
                "{used} of it is used up, and then {he} makes a call of {more} minutes.",
                "After {used} of it is gone, {he} talks for {more} minutes.",
            ),
        ],
        ask=("How many minutes are left?", "For how many more minutes does the phone run?"),
        steps=[
            step("gone = full * used", "{used} of {full} minutes is {=}."),
            step("rest = full - gone", "That leaves {=} minutes."),
            step("left = rest - more", "After the call {=} minutes are left."),
        ],
    ),
]
