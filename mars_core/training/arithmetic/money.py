"""Word problems about money."""

from __future__ import annotations

from mars_core.training.arithmetic.template import (
    Template,
    bills,
    cents,
    dollars,
    one_of,
    percent,
    step,
    whole,
)

TEMPLATES = [
    Template(
        name="two kinds of goods",
        topic="money",
        numbers={"n": whole(2, 9), "m": whole(2, 9), "p": dollars(2, 15), "q": dollars(2, 15)},
        words={
            "thing": ("notebook", "mug", "scarf", "puzzle", "plant", "lamp", "candle"),
            "item": ("pen", "brush", "poster", "key ring", "bag", "cushion", "pot"),
        },
        story=[
            (
                "{name} buys {n:thing} for {p} each and {m:item} for {q} each.",
                "{a thing} costs {p} and {a item} costs {q}. {name} buys {n:thing} and {m:item}.",
                "At a market, {name} picks {n:thing} at {p} each and {m:item} at {q} each.",
            )
        ],
        ask=("How much does {he} spend in all?", "What is the total cost?"),
        steps=[
            step("first = n * p", "The {things} cost {=}.", "{n:thing} cost {=}."),
            step("second = m * q", "The {items} cost {=}.", "{m:item} cost {=}."),
            step("total = first + second", "Together that is {=}.", "In all, {name} spends {=}."),
        ],
    ),
    Template(
        name="change from a bill",
        topic="money",
        numbers={"n": whole(2, 9), "p": cents(50, 950, 50), "bill": bills(10, 20, 50, 100)},
        words={"thing": ("sandwich", "muffin", "ticket", "postcard", "coffee", "ice cream cone")},
        story=[
            (
                "{name} buys {n:thing} at {p} each.",
                "{a thing} costs {p}, and {name} takes {n} of them.",
            ),
            ("{He} pays with a {bill} bill.", "{He} hands over a {bill} bill."),
        ],
        ask=("How much change does {he} get?", "How many dollars does {he} get back?"),
        steps=[
            step("cost = n * p", "The {things} cost {=}.", "{n:thing} cost {=}."),
            step("change = bill - cost", "The change is {=}.", "{name} gets back {=}."),
        ],
        where=["cost * 4 > bill"],
    ),
    Template(
        name="saving for something",
        topic="money",
        numbers={
            "w": dollars(3, 15),
            "k": whole(3, 12),
            "had": dollars(5, 40, 5),
            "price": dollars(60, 240, 10),
        },
        words={"goal": ("bicycle", "skateboard", "guitar", "tent", "camera", "pair of skates")},
        story=[
            (
                "{name} wants to buy {a goal} that costs {price}.",
                "{name} is saving for {a goal} with a price of {price}.",
            ),
            ("{He} already has {had}.", "{He} started with {had}."),
            (
                "{He} saves {w} every week for {k:week}.",
                "For {k:week}, {he} puts aside {w} a week.",
            ),
        ],
        ask=("How much more does {he} need?", "How many dollars are still missing?"),
        steps=[
            step("saved = k * w", "In {k:week} {he} saves {=}.", "{name} puts aside {=}."),
            step("have = had + saved", "Now {he} has {=}.", "With the first money it is {=}."),
            step("need = price - have", "{He} still needs {=}.", "What is missing is {=}."),
        ],
    ),
    Template(
        name="a stand's profit",
        topic="money",
        numbers={
            "n": whole(12, 60, 2),
            "p": dollars(2, 5),
            "a": dollars(4, 20),
            "b": dollars(3, 15),
        },
        words={"drink": ("lemonade", "iced tea", "apple juice", "hot chocolate")},
        story=[
            (
                "{name} and {other} sell {n} cups of {drink} at {p} a cup.",
                "At their stand, {name} and {other} sell {n} cups of {drink} for {p} each.",
            ),
            (
                "They spent {a} on ingredients and {b} on cups.",
                "The ingredients cost {a} and the cups cost {b}.",
            ),
            ("They share the profit equally.", "The profit is split evenly between the two."),
        ],
        ask=("How much does each of them get?", "How many dollars does {other} get?"),
        steps=[
            step("income = n * p", "They take in {=}.", "The cups bring in {=}."),
            step("costs = a + b", "Their costs are {=}.", "They spent {=}."),
            step("profit = income - costs", "The profit is {=}.", "What remains is {=}."),
            step("each = profit / 2", "Each gets {=}.", "Half of that is {=}."),
        ],
    ),
    Template(
        name="wages and tips",
        topic="money",
        numbers={
            "h": whole(3, 9),
            "rate": dollars(9, 18),
            "tips": dollars(6, 30, 2),
            "d": whole(2, 6),
        },
        words={"job": ("waiter", "barber", "courier", "barista", "porter")},
        story=[
            (
                "{name} works as {a job} for {h} hours a day and earns {rate} an hour.",
                "As {a job}, {name} earns {rate} an hour and works {h} hours every day.",
            ),
            ("On top of that, {he} gets {tips} in tips a day.", "Tips add {tips} a day."),
        ],
        ask=("How much does {he} earn in {d:day}?", "What are {his} earnings after {d:day}?"),
        steps=[
            step("daily = h * rate", "The wage for a day is {=}.", "In a day {he} earns {=}."),
            step("day = daily + tips", "With tips that is {=} a day.", "Adding the tips: {=}."),
            step("total = d * day", "In {d:day} {name} earns {=}.", "For {d:day}: {=}."),
        ],
    ),
    Template(
        name="percent off several",
        topic="money",
        numbers={"n": whole(2, 8), "p": dollars(5, 60, 5), "off": percent(10, 20, 25, 30, 50)},
        words={"thing": ("shirt", "chair", "board game", "backpack", "blanket", "frying pan")},
        story=[
            (
                "{a thing} costs {p}. {name} buys {n} of them.",
                "{name} chooses {n:thing} that cost {p} each.",
            ),
            (
                "The shop takes {off} off the total.",
                "There is a sale, and {he} gets {off} off the whole bill.",
            ),
        ],
        ask=("How much does {he} pay?", "What does {name} have to pay?"),
        steps=[
            step("full = n * p", "Without the sale they cost {=}.", "The full price is {=}."),
            step("less = full * off", "{off} of that is {=}.", "The discount is {=}."),
            step("pays = full - less", "{name} pays {=}.", "So the bill is {=}."),
        ],
    ),
    Template(
        name="a shared dinner",
        topic="money",
        numbers={
            "n": whole(3, 8),
            "meal": dollars(8, 22),
            "drinks": dollars(6, 40, 2),
            "tip": dollars(4, 24, 2),
        },
        story=[
            (
                "{n} friends have dinner. Each meal costs {meal}.",
                "{name} goes out for dinner with friends, {n} people in all. "
                "Everybody has a meal for {meal}.",
            ),
            (
                "The drinks for the table cost {drinks} and they leave a tip of {tip}.",
                "They also pay {drinks} for drinks and {tip} as a tip.",
            ),
        ],
        ask=(
            "They split everything evenly. How much does each person pay?",
            "If everyone pays the same, how much is that for each?",
        ),
        steps=[
            step("food = n * meal", "The meals cost {=}.", "{n} meals are {=}."),
            step("bill = food + drinks", "With the drinks it is {=}.", "Adding the drinks: {=}."),
            step("total = bill + tip", "With the tip it is {=}.", "Adding the tip: {=}."),
            step("each = total / n", "Each person pays {=}.", "Split {n} ways that is {=}."),
        ],
    ),
    Template(
        name="cheaper by the box",
        topic="money",
        numbers={
            "k": one_of(4, 5, 6, 8, 10, 12),
            "p": dollars(2, 9),
            "c": dollars(8, 90),
            "b": whole(2, 9),
        },
        words={"thing": ("battery", "marker", "light bulb", "juice box", "tennis ball")},
        story=[
            (
                "A single {thing} costs {p}. A box of {k:thing} costs {c}.",
                "A shop sells {things} at {p} each, or in boxes of {k} for {c} a box.",
            ),
            ("{name} buys {b} boxes.", "{name} takes {b} of the boxes."),
        ],
        ask=(
            "How much does {he} save compared with buying single {things}?",
            "How much cheaper is that than the same number of single {things}?",
        ),
        steps=[
            step("single = k * p", "{k} single {things} cost {=}.", "Bought singly: {=}."),
            step("saving = single - c", "A box saves {=}.", "So each box is {=} cheaper."),
            step("total = b * saving", "{b} boxes save {=}.", "In all {he} saves {=}."),
        ],
        where=["single > c", "c * 2 > single"],
    ),
    Template(
        name="a taxi ride",
        topic="money",
        numbers={"base": dollars(3, 9), "rate": cents(150, 400, 50), "d": whole(4, 24, 2)},
        story=[
            (
                "A taxi costs {base} to start and {rate} for every mile.",
                "A taxi driver charges {base} plus {rate} a mile.",
            ),
            ("{name} rides {d} miles.", "{name} takes it for {d} miles."),
        ],
        ask=("How much does {he} pay?", "What does the ride cost?"),
        steps=[
            step("miles = d * rate", "The miles cost {=}.", "{d} miles come to {=}."),
            step("total = base + miles", "The ride costs {=}.", "With the start it is {=}."),
        ],
    ),
    Template(
        name="a shopping trip",
        topic="money",
        numbers={
            "n": whole(2, 6),
            "p": dollars(4, 14),
            "m": whole(2, 8),
            "q": dollars(1, 4),
            "bill": bills(50, 100),
            "lunch": dollars(5, 15),
        },
        words={
            "thing": ("book", "comic", "cap", "picture frame"),
            "item": ("pen", "sticker", "ribbon", "bookmark"),
        },
        story=[
            (
                "{name} goes shopping with {bill}.",
                "{name} takes {bill} to the shops.",
            ),
            (
                "{He} buys {n:thing} at {p} each and {m:item} at {q} each.",
                "{He} gets {n:thing} for {p} each, and {m:item} for {q} each.",
            ),
            (
                "Then {he} has lunch for {lunch} and gives half of what is left to {other}.",
                "After a lunch for {lunch}, {he} gives half of the remaining money to {other}.",
            ),
        ],
        ask=("How much money does {name} have now?", "How much does {he} keep?"),
        steps=[
            step("first = n * p", "The {things} cost {=}.", "{n:thing} cost {=}."),
            step("second = m * q", "The {items} cost {=}.", "{m:item} cost {=}."),
            step("cost = first + second", "Both together cost {=}.", "That makes {=}."),
            step("left = bill - cost", "Then {he} has {=}.", "After that there is {=}."),
            step("rest = left - lunch", "After lunch {he} has {=}.", "Lunch leaves {=}."),
            step("keeps = rest / 2", "{He} keeps {=}.", "Half of it is {=}."),
        ],
    ),
    Template(
        name="museum tickets",
        topic="money",
        held_out=True,
        numbers={
            "a": whole(2, 6),
            "c": whole(3, 12),
            "p": dollars(9, 20),
            "q": dollars(4, 8),
            "off": dollars(5, 20, 5),
        },
        words={"place": ("museum", "zoo", "castle", "aquarium")},
        story=[
            (
                "A ticket for the {place} is {p} for adults and {q} for children.",
                "The {place} charges {p} for an adult and {q} for a child.",
            ),
            (
                "A group of {a:adult} and {c:child} gets {off} off.",
                "{a:adult} and {c:child} go together, and get a group discount of {off}.",
            ),
        ],
        ask=("How much does the group pay?", "What do they pay in all?"),
        steps=[
            step("adults = a * p", "The adults cost {=}."),
            step("children = c * q", "The children cost {=}."),
            step("full = adults + children", "Together that is {=}."),
            step("pays = full - off", "With the discount they pay {=}."),
        ],
    ),
    Template(
        name="two gym memberships",
        topic="money",
        held_out=True,
        numbers={
            "join": dollars(20, 60, 5),
            "m": dollars(15, 35),
            "flat": dollars(30, 60),
            "k": whole(4, 12),
        },
        story=[
            (
                "Gym A charges {join} to join and {m} a month. Gym B charges {flat} a month.",
                "At gym A, joining is {join} and each month is {m}. At gym B a month is {flat}.",
            ),
            ("{name} wants to train for {k} months.", "{name} will go for {k} months."),
        ],
        ask=("How much cheaper is gym A?", "How much does {he} save by choosing gym A?"),
        steps=[
            step("months = k * m", "The months at gym A cost {=}."),
            step("first = join + months", "With joining, gym A costs {=}."),
            step("second = k * flat", "Gym B costs {=}."),
            step("less = second - first", "The difference is {=}."),
        ],
    ),
]
