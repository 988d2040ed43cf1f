"""Word problems about hours, minutes and days."""

from __future__ import annotations

from mars_core.training.arithmetic.template import Template, halves, one_of, step, whole

TEMPLATES = [
    Template(
        name="weekdays and weekends",
        topic="time",
        numbers={"m": whole(15, 60, 5), "n": whole(20, 90, 5)},
        words={"hobby": ("the piano", "the violin", "Spanish", "juggling", "typing", "chess")},
        story=[
            (
                "{name} practices {hobby} for {m} minutes on each weekday and {n} minutes on "
                "each day of the weekend.",
                "On weekdays {name} practices {hobby} for {m} minutes a day, at the weekend for "
                "{n} minutes a day.",
            ),
        ],
        ask=("How many minutes is that in a week?", "How many minutes does {he} practice a week?"),
        steps=[
            step("five = 5 * m", "The 5 weekdays make {=} minutes.", "Weekdays: {=} minutes."),
            step("two = 2 * n", "The weekend adds {=} minutes.", "Weekend: {=} minutes."),
            step("total = five + two", "In a week it is {=} minutes.", "Together: {=} minutes."),
        ],
        where=["m != n"],
    ),
    Template(
        name="an evening at the movies",
        topic="time",
        numbers={
            "h": one_of(1, 2, 3),
            "m": whole(5, 55, 5),
            "ads": whole(10, 30),
            "b": whole(5, 25),
        },
        words={"show": ("film", "play", "concert", "musical")},
        story=[
            (
                "{a show} lasts {h:hour} and {m} minutes.",
                "{name} goes to {a show} that is {h:hour} and {m} minutes long.",
            ),
            (
                "It begins {ads} minutes late and has a break of {b} minutes.",
                "It starts {ads} minutes late, and in the middle there is a break of {b} minutes.",
            ),
        ],
        ask=(
            "How many minutes after the planned start does it end?",
            "How many minutes pass from the planned start to the end?",
        ),
        steps=[
            step("hours = h * 60", "{h:hour} {h is} {=} minutes.", "The hours make {=} minutes."),
            step("long = hours + m", "The {show} takes {=} minutes.", "With the rest: {=}."),
            step("late = long + ads", "With the late start it is {=}.", "The delay makes it {=}."),
            step("total = late + b", "With the break it is {=}.", "Adding the break: {=}."),
        ],
    ),
    Template(
        name="a working day",
        topic="time",
        numbers={
            "h": whole(7, 11),
            "m": whole(10, 55, 5),
            "i": whole(13, 19),
            "j": whole(10, 55, 5),
            "b": whole(15, 60, 5),
        },
        story=[
            (
                "{name} works from {h}:{m} to {i}:{j}.",
                "{name} starts work at {h}:{m} and stops at {i}:{j}.",
            ),
            ("{He} takes a break of {b} minutes.", "In between, {he} rests for {b} minutes."),
        ],
        ask=("How many minutes does {he} work?", "For how many minutes does {name} work?"),
        steps=[
            step("start = h * 60 + m", "{h}:{m} is minute {=} of the day.", "The start: {=}."),
            step("end = i * 60 + j", "{i}:{j} is minute {=} of the day.", "The end: {=}."),
            step("span = end - start", "In between are {=} minutes.", "The difference is {=}."),
            step("work = span - b", "Without the break it is {=}.", "Minus the break: {=}."),
        ],
    ),
    Template(
        name="hours in a term",
        topic="time",
        numbers={"h": whole(2, 8), "d": one_of(3, 4, 5), "w": whole(3, 12), "off": whole(2, 6)},
        words={"place": ("the library", "a bakery", "an animal shelter", "the office")},
        story=[
            (
                "{name} helps at {place} for {h} hours a day, {d} days a week.",
                "On {d} days a week, {name} works at {place} for {h} hours.",
            ),
            (
                "In {w} weeks {he} misses {off} days.",
                "{He} does this for {w} weeks but is ill on {off} of the days.",
            ),
        ],
        ask=("How many hours is {he} there?", "How many hours does {he} help in all?"),
        steps=[
            step("days = w * d", "That would be {=} days.", "In {w} weeks there are {=} days."),
            step("there = days - off", "{He} is there on {=} days.", "Days at work: {=}."),
            step("hours = there * h", "That makes {=} hours.", "In hours: {=}."),
        ],
    ),
    Template(
        name="baking in batches",
        topic="time",
        numbers={
            "n": whole(24, 240, 12),
            "per": one_of(6, 8, 12),
            "m": whole(8, 30),
            "prep": whole(10, 60, 5),
        },
        words={"thing": ("cookie", "roll", "muffin", "bagel", "pretzel")},
        story=[
            (
                "{name} wants to bake {n:thing}. The oven holds {per} at a time.",
                "{n:thing} are to be baked, and {per} fit into the oven at once.",
            ),
            (
                "A batch takes {m} minutes, and making the dough takes {prep} minutes.",
                "The dough takes {prep} minutes, every batch {m} minutes.",
            ),
        ],
        ask=("How many minutes does it take in all?", "After how many minutes is all done?"),
        steps=[
            step("batches = n / per", "There are {=} batches.", "That is {=} batches."),
            step("oven = batches * m", "The oven is on for {=} minutes.", "Baking: {=} minutes."),
            step("total = oven + prep", "With the dough it is {=}.", "Adding the dough: {=}."),
        ],
    ),
    Template(
        name="a journey in parts",
        topic="time",
        numbers={
            "bus": whole(10, 50, 5),
            "h": whole(2, 6),
            "m": whole(5, 50, 5),
            "wait": whole(10, 40),
            "walk": whole(4, 20),
        },
        story=[
            (
                "{name} takes a bus for {bus} minutes and waits {wait} minutes for the train.",
                "After {bus} minutes on the bus, {name} waits {wait} minutes for a train.",
            ),
            (
                "The train takes {h} hours and {m} minutes. Then {he} walks for {walk} minutes.",
                "{He} is on the train for {h} hours and {m} minutes, and walks for the last "
                "{walk} minutes.",
            ),
        ],
        ask=("How many minutes does the journey take?", "How long is the journey in minutes?"),
        steps=[
            step("before = bus + wait", "Bus and waiting take {=} minutes.", "First: {=} minutes."),
            step("hours = h * 60", "{h} hours are {=} minutes.", "The hours make {=} minutes."),
            step("train = hours + m", "The train takes {=} minutes.", "On the train: {=}."),
            step("both = before + train", "Together that is {=}.", "Up to there it is {=}."),
            step("total = both + walk", "With the walk it is {=}.", "Adding the walk: {=}."),
        ],
    ),
    Template(
        name="lessons of half hours",
        topic="time",
        numbers={"t": halves(1, 4), "d": one_of(2, 4), "w": whole(2, 10)},
        decimals=1,
        words={"class": ("dance", "drawing", "swimming", "pottery", "karate")},
        story=[
            (
                "{a class} lesson takes {t} hours, and {name} has {d} lessons a week.",
                "{name} goes to {d} {class} lessons a week. Each takes {t} hours.",
            ),
        ],
        ask=("How many hours is that in {w} weeks?", "How many hours of lessons are {w} weeks?"),
        steps=[
            step("week = d * t", "In a week it is {=} hours.", "A week has {=} hours."),
            step("total = w * week", "In {w} weeks that is {=} hours.", "{w} weeks: {=} hours."),
        ],
    ),
    Template(
        name="laps in a pool",
        topic="time",
        held_out=True,
        numbers={"s": whole(30, 90, 5), "n": whole(4, 24, 2), "r": whole(3, 15)},
        story=[
            (
                "{name} swims {n} laps, each in {s} seconds, and then rests for {r} minutes.",
                "A lap takes {name} {s} seconds. {He} swims {n} laps and rests for {r} minutes.",
            ),
        ],
        ask=("How many minutes is that in all?", "How many minutes does it take with the rest?"),
        steps=[
            step("seconds = n * s", "The laps take {=} seconds."),
            step("minutes = seconds / 60", "That is {=:minute}."),
            step("total = minutes + r", "With the rest it is {=} minutes."),
        ],
    ),
]
