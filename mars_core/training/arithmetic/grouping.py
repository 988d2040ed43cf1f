"""Word problems about equal groups and what remains."""

from __future__ import annotations

from mars_core.training.arithmetic.template import (
    Template,
    dollars,
    one_of,
    step,
    whole,
)

TEMPLATES = [
    Template(
        name="boxes and leftovers",
        topic="grouping",
        numbers={"n": whole(20, 150), "per": whole(4, 12)},
        words={
            "thing": ("egg", "cupcake", "orange", "golf ball", "cookie", "peach"),
            "box": ("box", "carton", "tray", "basket"),
        },
        story=[
            (
                "{name} has {n:thing} and puts {per} into each {box}.",
                "{n:thing} are packed into {boxs} of {per}.",
                "There are {n:thing}. Every {box} takes {per} of them.",
            ),
            ("Only full {boxs} are sold.", "{name} fills as many {boxs} as possible."),
        ],
        ask=("How many {things} are left over?", "How many {things} remain?"),
        steps=[
            step("full = n // per", "Dividing: {=}.", "{n} shared out: {=}."),
            step("packed = full * per", "The full {boxs} hold {=}.", "Packed are {=:thing}."),
            step("left = n - packed", "{=:thing} {left is} left over.", "What remains: {=}."),
        ],
        where=["n % per > 0"],
    ),
    Template(
        name="buses for a trip",
        topic="grouping",
        numbers={"a": whole(40, 200), "b": whole(4, 20), "seats": one_of(20, 25, 30, 40, 45, 50)},
        words={"vehicle": ("bus", "coach"), "who": ("student", "child", "scout")},
        story=[
            (
                "{a:who} and {b:teacher} go on a trip.",
                "A school trip has {a:who} and {b:teacher}.",
            ),
            ("Each {vehicle} has {seats} seats.", "{a vehicle} seats {seats} people."),
        ],
        ask=("How many {vehicles} do they need?", "How many {vehicles} must be rented?"),
        steps=[
            step("people = a + b", "In all there are {=} people.", "That is {=} people."),
            step("full = people // seats", "Dividing: {=}.", "Sharing out the seats: {=}."),
            step(
                "need = full + 1",
                "The rest need one more {vehicle}: {=}.",
                "One more takes those who remain: {=}.",
            ),
        ],
        where=["people % seats > 0"],
    ),
    Template(
        name="beads for necklaces",
        topic="grouping",
        numbers={"packs": whole(2, 9), "per": whole(15, 60, 5), "use": whole(8, 25)},
        words={
            "thing": ("bead", "pearl", "crystal"),
            "work": ("necklace", "bracelet", "key chain"),
        },
        story=[
            (
                "{name} buys {packs} packs of {per:thing}.",
                "There are {packs} packs with {per:thing} in each.",
            ),
            ("Every {work} takes {use} of them.", "{He} needs {use:thing} for one {work}."),
        ],
        ask=(
            "After as many {works} as possible, how many {things} are left?",
            "{name} makes as many {works} as {he} can. How many {things} remain?",
        ),
        steps=[
            step("all = packs * per", "In all there are {=:thing}.", "{name} has {=:thing}."),
            step("made = all // use", "Dividing: {=}.", "Into groups of {use}: {=}."),
            step("used = made * use", "The {works} take {=:thing}.", "Used up are {=}."),
            step("left = all - used", "So {=:thing} {left is} left.", "What remains: {=}."),
        ],
        where=["all % use > 0", "made > 1"],
    ),
    Template(
        name="cutting ribbon",
        topic="grouping",
        numbers={"m": whole(2, 12), "k": whole(12, 90, 2)},
        words={"ribbon": ("ribbon", "rope", "wire", "cord")},
        story=[
            (
                "{name} has {m} meters of {ribbon} and cuts it into pieces of {k} centimeters.",
                "{a ribbon} of {m} meters is cut into pieces, each {k} centimeters long.",
            ),
        ],
        ask=(
            "How many centimeters are left over?",
            "How long is the piece that remains, in centimeters?",
        ),
        steps=[
            step("all = m * 100", "In centimeters it is {=}.", "{m} meters are {=} centimeters."),
            step("pieces = all // k", "Dividing: {=}.", "Cutting: {=}."),
            step("used = pieces * k", "The pieces use up {=}.", "Cut off are {=} centimeters."),
            step("left = all - used", "Left over: {=}.", "That leaves {=} centimeters."),
        ],
        where=["all % k > 0"],
    ),
    Template(
        name="sharing out a collection",
        topic="grouping",
        numbers={"n": whole(3, 12), "per": whole(4, 20), "more": whole(3, 40), "f": whole(3, 9)},
        words={
            "thing": ("card", "stamp", "coin", "toy car", "comic book"),
            "album": ("album", "box", "bag", "drawer"),
        },
        story=[
            (
                "{name} has {n:album} with {per:thing} in each, and {more} more on the table.",
                "In each of {n:album} {name} keeps {per:thing}. There are {more} others.",
            ),
            (
                "{He} shares all of them equally among {f} friends.",
                "All of them are divided evenly among {f} friends.",
            ),
        ],
        ask=("How many does each friend get?", "How many {things} are there for each friend?"),
        steps=[
            step("inside = n * per", "The {albums} hold {=:thing}.", "In the {albums}: {=}."),
            step("all = inside + more", "In all there are {=}.", "With the others: {=:thing}."),
            step("each = all / f", "Each friend gets {=}.", "For each friend: {=:thing}."),
        ],
    ),
    Template(
        name="a school fair",
        topic="grouping",
        numbers={
            "a": whole(15, 60, 5),
            "p": dollars(3, 8),
            "c": whole(20, 90, 5),
            "q": dollars(1, 3),
            "hall": dollars(20, 90, 5),
            "prizes": dollars(15, 60, 5),
            "k": one_of(2, 3, 4, 5, 6),
        },
        words={"event": ("fair", "concert", "play", "quiz night")},
        story=[
            (
                "{a} adults pay {p} each and {c} children pay {q} each for a school {event}.",
                "At a school {event}, {a} adult tickets at {p} and {c} child tickets at {q} are "
                "sold.",
            ),
            (
                "The hall costs {hall} and the prizes cost {prizes}.",
                "{hall} is paid for the hall, and {prizes} for prizes.",
            ),
            (
                "What is left is divided equally among {k} classes.",
                "{k} classes share the rest evenly.",
            ),
        ],
        ask=("How much does each class get?", "How many dollars go to each class?"),
        steps=[
            step("adults = a * p", "The adults pay {=}.", "Adult tickets bring {=}."),
            step("children = c * q", "The children pay {=}.", "Child tickets bring {=}."),
            step("income = adults + children", "Together that is {=}.", "The income is {=}."),
            step("costs = hall + prizes", "The costs are {=}.", "Hall and prizes cost {=}."),
            step("profit = income - costs", "What is left is {=}.", "The profit is {=}."),
            step("each = profit / k", "Each class gets {=}.", "For each class: {=}."),
        ],
    ),
    Template(
        name="chairs in rows",
        topic="grouping",
        numbers={
            "rows": whole(5, 20),
            "per": whole(6, 16),
            "add": whole(2, 8),
            "guests": whole(40, 300, 5),
        },
        words={"place": ("hall", "tent", "garden", "theater")},
        story=[
            (
                "In {a place} there are {rows} rows of {per} chairs.",
                "{a place} is set up with {rows} rows, {per} chairs in each.",
            ),
            (
                "{add} more rows are added, and {guests} guests sit down.",
                "Another {add} rows like these are added before {guests} guests take a seat.",
            ),
        ],
        ask=("How many chairs stay empty?", "How many chairs are free?"),
        steps=[
            step("all = rows + add", "There are {=} rows.", "In all that is {=} rows."),
            step("chairs = all * per", "They have {=} chairs.", "That makes {=} chairs."),
            step("free = chairs - guests", "{=:chair} {free is} empty.", "Empty: {=}."),
        ],
    ),
    Template(
        name="pages of a photo album",
        topic="grouping",
        held_out=True,
        numbers={
            "a": whole(20, 90),
            "b": whole(15, 80),
            "bad": whole(3, 20),
            "per": one_of(4, 6, 8, 9),
        },
        story=[
            (
                "{name} took {a} photos at the lake and {b} in the mountains. {bad} are blurred.",
                "From two trips {name} has {a} and {b} photos, but {bad} of them are blurred.",
            ),
            ("The others go into an album, {per} on a page.", "An album page takes {per} photos."),
        ],
        ask=(
            "How many pages do the good photos need?",
            "How many pages are needed for the good ones?",
        ),
        steps=[
            step("all = a + b", "In all there are {=} photos."),
            step("good = all - bad", "Of those, {=} are good."),
            step("full = good // per", "Dividing: {=}."),
            step("pages = full + 1", "The rest need one more page: {=}."),
        ],
        where=["good % per > 0"],
    ),
]
