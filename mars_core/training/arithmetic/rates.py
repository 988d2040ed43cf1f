"""Word problems about speeds, outputs and amounts per something."""

from __future__ import annotations

from mars_core.training.arithmetic.template import (
    Template,
    dollars,
    halves,
    one_of,
    step,
    whole,
)

TEMPLATES = [
    Template(
        name="two speeds",
        topic="rates",
        numbers={
            "a": whole(2, 6),
            "s": whole(30, 70, 5),
            "b": whole(2, 5),
            "t": whole(20, 60, 5),
        },
        words={"vehicle": ("bus", "truck", "train", "car", "van")},
        story=[
            (
                "{a vehicle} goes {s} miles an hour for {a:hour}.",
                "For {a:hour}, {a vehicle} travels at {s} miles an hour.",
            ),
            (
                "Then it goes {t} miles an hour for {b:hour}.",
                "After that it does {t} miles an hour for another {b:hour}.",
            ),
        ],
        ask=("How far does it go in all?", "How many miles does the {vehicle} cover?"),
        steps=[
            step("first = a * s", "First it goes {=:mile}.", "In the first {a:hour}: {=:mile}."),
            step("second = b * t", "Then it goes {=:mile}.", "In the next {b:hour}: {=:mile}."),
            step("total = first + second", "In all it goes {=:mile}.", "Together: {=:mile}."),
        ],
        where=["s != t"],
    ),
    Template(
        name="finishing a book",
        topic="rates",
        numbers={
            "pages": whole(120, 400, 10),
            "p": whole(8, 30),
            "d": whole(3, 9),
            "q": whole(10, 40, 5),
        },
        story=[
            (
                "{name} is reading a book of {pages} pages.",
                "{name} starts a book that has {pages} pages.",
            ),
            (
                "For {d} days {he} reads {p} pages a day.",
                "{He} reads {p} pages every day for {d} days.",
            ),
        ],
        ask=(
            "At {q} pages a day, how many more days does {he} need?",
            "How many days will the rest take at {q} pages a day?",
        ),
        steps=[
            step("read = d * p", "So far {he} has read {=} pages.", "In {d} days: {=} pages."),
            step("left = pages - read", "That leaves {=:page}.", "There are {=:page} to go."),
            step("days = left / q", "{He} needs {=:day}.", "The rest takes {=:day}."),
        ],
        where=["p != q"],
    ),
    Template(
        name="a machine with rejects",
        topic="rates",
        numbers={
            "r": whole(4, 24),
            "m": whole(5, 30, 5),
            "bad": whole(3, 40),
            "box": one_of(4, 5, 6, 8, 10, 12),
        },
        words={"thing": ("bottle", "toy car", "cup", "bolt", "candle", "bar of soap")},
        story=[
            (
                "A machine makes {r:thing} a minute and runs for {m} minutes.",
                "A factory line turns out {r:thing} every minute. It runs for {m} minutes.",
            ),
            (
                "{bad} of them are faulty and thrown away. The others go into boxes of {box}.",
                "Of these, {bad} are broken. The good ones are packed in boxes of {box}.",
            ),
        ],
        ask=("How many boxes are filled?", "How many full boxes does that make?"),
        steps=[
            step("made = m * r", "It makes {=:thing}.", "In {m} minutes it makes {=:thing}."),
            step("good = made - bad", "Of those, {=} are good.", "The good ones are {=}."),
            step("boxes = good / box", "They fill {=:box}.", "That is {=:box}."),
        ],
        where=["bad * 3 < made"],
    ),
    Template(
        name="a leaking tank",
        topic="rates",
        numbers={"r": whole(8, 40), "leak": whole(2, 12), "volume": whole(60, 600, 10)},
        words={"tank": ("tank", "pool", "pond", "barrel")},
        story=[
            (
                "A hose puts {r} liters of water a minute into {a tank}, but {leak} liters a "
                "minute leak out.",
                "{a tank} is filled at {r} liters a minute while it loses {leak} liters a minute.",
            ),
        ],
        ask=(
            "How many minutes does it take until it holds {volume} liters?",
            "After how many minutes are there {volume} liters in the {tank}?",
        ),
        steps=[
            step("net = r - leak", "Each minute adds {=:liter}.", "The water rises by {=:liter}."),
            step("minutes = volume / net", "It takes {=:minute}.", "So {=:minute} are needed."),
        ],
        where=["net > 1", "minutes > 1"],
    ),
    Template(
        name="working together",
        topic="rates",
        numbers={
            "a": whole(4, 20),
            "b": whole(3, 18),
            "h": whole(2, 8),
            "goal": whole(80, 300, 10),
        },
        words={
            "thing": ("paper star", "cookie", "bracelet", "dumpling", "invitation", "paper flower")
        },
        story=[
            (
                "{name} makes {a:thing} an hour and {other} makes {b} an hour.",
                "In an hour, {name} makes {a:thing} and {other} makes {b}.",
            ),
            (
                "They want to have {goal} and work together for {h:hour}.",
                "They need {goal} of them. They work side by side for {h:hour}.",
            ),
        ],
        ask=("How many are still missing?", "How many {things} do they still have to make?"),
        steps=[
            step("both = a + b", "Together they make {=} an hour.", "In one hour: {=:thing}."),
            step("made = h * both", "In {h:hour} that is {=}.", "After {h:hour}: {=:thing}."),
            step("left = goal - made", "They still need {=}.", "What is missing is {=:thing}."),
        ],
        where=["a != b"],
    ),
    Template(
        name="scaling a recipe",
        topic="rates",
        numbers={"s": one_of(2, 3, 4, 5, 6), "g": whole(60, 900, 20), "n": whole(3, 20)},
        words={"food": ("flour", "rice", "sugar", "butter", "oats", "pasta")},
        story=[
            (
                "A recipe for {s} people needs {g} grams of {food}.",
                "To cook for {s} people, {name} takes {g} grams of {food}.",
            ),
        ],
        ask=(
            "How many grams of {food} are needed for {n} people?",
            "How much {food}, in grams, does it take for {n} people?",
        ),
        steps=[
            step("per = g / s", "One person needs {=} grams.", "For one person: {=} grams."),
            step("need = n * per", "{n} people need {=} grams.", "For {n} people: {=} grams."),
        ],
        where=["n != s"],
    ),
    Template(
        name="fuel for a trip",
        topic="rates",
        numbers={
            "d": whole(100, 900, 100),
            "use": whole(4, 12),
            "p": dollars(2, 4),
            "toll": dollars(5, 25),
        },
        story=[
            (
                "A car uses {use} liters of fuel for 100 kilometers.",
                "For 100 kilometers, {name}'s car needs {use} liters of fuel.",
            ),
            (
                "{name} drives {d} kilometers. A liter costs {p}, and the tolls are {toll}.",
                "Fuel is {p} a liter. {name} drives {d} kilometers and pays {toll} in tolls.",
            ),
        ],
        ask=("What does the trip cost?", "How much do fuel and tolls cost together?"),
        steps=[
            step("parts = d / 100", "The trip is {=} times 100 kilometers."),
            step("liters = parts * use", "It takes {=} liters.", "The car uses {=} liters."),
            step("fuel = liters * p", "The fuel costs {=}.", "{liters} liters cost {=}."),
            step("total = fuel + toll", "With the tolls it is {=}.", "Fuel and tolls: {=}."),
        ],
        where=["parts > 1"],
    ),
    Template(
        name="watering a garden",
        topic="rates",
        numbers={
            "rows": whole(3, 12),
            "per": whole(4, 12),
            "w": one_of(2, 3, 4),
            "d": whole(2, 7),
            "can": one_of(6, 8, 10, 12),
        },
        words={"plant": ("tomato plant", "rose bush", "pepper plant", "bean plant")},
        story=[
            (
                "A garden has {rows} rows with {per:plant} in each.",
                "{name} has planted {rows} rows of {per:plant}.",
            ),
            (
                "Every plant gets {w} liters of water a day. A can holds {can} liters.",
                "Each of them needs {w} liters of water a day, and {name}'s can holds {can} "
                "liters.",
            ),
        ],
        ask=(
            "How many cans of water does it take in {d} days?",
            "How many times is the can filled in {d} days?",
        ),
        steps=[
            step("plants = rows * per", "There are {=:plant}.", "The garden has {=} plants."),
            step("daily = plants * w", "They need {=} liters a day.", "A day takes {=} liters."),
            step("water = d * daily", "In {d} days that is {=} liters.", "{d} days: {=} liters."),
            step("cans = water / can", "That is {=:can}.", "It takes {=:can}."),
        ],
    ),
    Template(
        name="cheese from milk",
        topic="rates",
        numbers={
            "cows": whole(3, 14),
            "l": whole(8, 25),
            "keep": whole(10, 60, 5),
            "per": one_of(5, 10),
            "p": dollars(6, 18),
        },
        words={"animal": ("cow", "goat")},
        story=[
            (
                "A farmer has {cows:animal} that give {l} liters of milk a day each.",
                "On a farm, {cows:animal} each give {l} liters of milk a day.",
            ),
            (
                "{keep} liters are kept for the family. The rest becomes cheese: {per} liters "
                "make one cheese, which sells for {p}.",
                "The family keeps {keep} liters. {per} liters of the rest make one cheese, and "
                "every cheese is sold for {p}.",
            ),
        ],
        ask=("How much money does the cheese of a day bring?", "What is a day's cheese worth?"),
        steps=[
            step("milk = cows * l", "The {animals} give {=} liters.", "A day brings {=} liters."),
            step("rest = milk - keep", "{=} liters are left.", "For cheese there are {=} liters."),
            step("cheeses = rest / per", "They make {=:cheese}.", "That is {=:cheese}."),
            step("money = cheeses * p", "They sell for {=}.", "The cheese brings {=}."),
        ],
        where=["keep * 2 < milk"],
    ),
    Template(
        name="hikes of half hours",
        topic="rates",
        numbers={"t": halves(1, 6), "s": one_of(2, 4), "rest": whole(2, 9)},
        decimals=1,
        story=[
            (
                "{name} hikes at {s} miles an hour for {t} hours before lunch.",
                "Before lunch, {name} hikes for {t} hours at {s} miles an hour.",
            ),
            ("After lunch {he} hikes {rest} more miles.", "Then {he} hikes another {rest} miles."),
        ],
        ask=("How many miles does {he} hike?", "How long is the hike in miles?"),
        steps=[
            step("first = t * s", "Before lunch {he} hikes {=} miles.", "Up to lunch: {=:mile}."),
            step("total = first + rest", "In all it is {=} miles.", "Together: {=:mile}."),
        ],
    ),
    Template(
        name="printing a newsletter",
        topic="rates",
        held_out=True,
        numbers={
            "copies": whole(20, 120, 10),
            "pages": whole(2, 8),
            "speed": one_of(10, 20, 30, 40),
        },
        story=[
            (
                "A newsletter has {pages} pages. {name} prints {copies} copies.",
                "{name} prints {copies} copies of a newsletter with {pages} pages.",
            ),
            ("The printer does {speed} pages a minute.", "{speed} pages are printed a minute."),
        ],
        ask=("How many minutes does it take?", "How long does that take, in minutes?"),
        steps=[
            step("sheets = copies * pages", "In all {=} pages are printed."),
            step("minutes = sheets / speed", "That takes {=:minute}."),
        ],
    ),
    Template(
        name="train carriages",
        topic="rates",
        held_out=True,
        numbers={
            "cars": whole(3, 12),
            "seats": whole(20, 80, 4),
            "trips": whole(2, 8),
            "empty": whole(5, 90, 5),
        },
        story=[
            (
                "A train has {cars} carriages with {seats} seats each.",
                "Each of the {cars} carriages of a train has {seats} seats.",
            ),
            ("It makes {trips} trips a day.", "Every day it makes {trips} trips."),
            (
                "Today {empty} seats stayed empty in all.",
                "Over all the trips of today, {empty} seats were empty.",
            ),
        ],
        ask=("How many passengers did it carry today?", "How many people took the train today?"),
        steps=[
            step("places = cars * seats", "The train has {=} seats."),
            step("all = trips * places", "In {trips} trips that is {=} seats."),
            step("people = all - empty", "It carried {=} passengers."),
        ],
    ),
]
