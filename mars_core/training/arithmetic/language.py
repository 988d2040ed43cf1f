"""English for word problems: plurals, articles, pronouns, and sentences with slots.

Slots of a sentence, for a quantity `n`, a noun `thing` and an equation:

    {n}             24, $4.50, two thirds          {name}    Mia            {other}   Ben
    {n:apple}       1 apple, 24 apples             {he}      she            {his}     her
    {n:thing}       24 of the noun drawn           {him}     her            {He}      She
    {n times}       twice, 3 times                 {things}  the plural     {thing}   the singular
    {n is}          is, are                        {a thing} with its article
    {=}             4 * 6 = 24                     {=:thing} 4 * 6 = 24 apples

A sentence begins with a capital whatever its first slot holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from mars_core.training.arithmetic.expression import Quantity

SLOT = re.compile(r"\{([^{}]+)\}")
SENTENCE_START = re.compile(r"(?:^|(?<=[.?!] ))[a-z]")
IRREGULAR = {
    "child": "children",
    "fish": "fish",
    "foot": "feet",
    "goose": "geese",
    "half": "halves",
    "knife": "knives",
    "leaf": "leaves",
    "loaf": "loaves",
    "man": "men",
    "mouse": "mice",
    "person": "people",
    "potato": "potatoes",
    "sheep": "sheep",
    "shelf": "shelves",
    "tomato": "tomatoes",
    "woman": "women",
}
SIBILANTS = ("s", "x", "z", "ch", "sh")
PRONOUNS = {
    "she": {"he": "she", "his": "her", "him": "her"},
    "he": {"he": "he", "his": "his", "him": "him"},
}
# sounded as a vowel though written as none, and the other way round
AN = ("hour", "heir", "honest")
A = ("uni", "use", "euro", "one")
WORDS_TIMES = {2: "twice"}


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    pronoun: str


def plural(noun: str) -> str:
    """ "box of tea" -> "boxes of tea", "story book" -> "story books"."""
    head, of, rest = noun.partition(" of ")
    before, space, word = head.rpartition(" ")
    return f"{before}{space}{plural_word(word)}{of}{rest}"


def plural_word(word: str) -> str:
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(SIBILANTS) else "s")


def counted(quantity: Quantity, noun: str) -> str:
    """ "1 apple", "24 apples", "2.5 hours"."""
    return f"{quantity} {noun if quantity.value == 1 else plural(noun)}"


def with_article(noun: str) -> str:
    """ "an apple", "a unicorn", "an hour"."""
    vowel = noun.startswith(AN) or (noun[0] in "aeiou" and not noun.startswith(A))
    return f"{'an' if vowel else 'a'} {noun}"


def capitalised(text: str) -> str:
    """The text with a capital at the start of every sentence."""
    return SENTENCE_START.sub(lambda match: match[0].upper(), text)


@dataclass(frozen=True, slots=True)
class Scene:
    """What the slots of a sentence may refer to. equation: of the step that is being told."""

    person: Person
    other: Person
    nouns: Mapping[str, str]
    numbers: Mapping[str, Quantity]
    equation: str = ""
    result: Quantity = Quantity(Fraction(0))  # noqa: RUF009 (immutable)

    def tell(self, sentence: str) -> str:
        """The sentence with its slots filled. KeyError for a slot that refers to nothing."""
        return capitalised(SLOT.sub(lambda match: self.fill(match[1]), sentence))

    def fill(self, slot: str) -> str:
        """What stands in place of {slot}."""
        if ":" in slot:
            name, noun = slot.split(":")
            noun = self.nouns.get(noun, noun)
            if name == "=":
                return f"{self.equation} {noun if self.result.value == 1 else plural(noun)}"
            return counted(self.numbers[name], noun)
        first, _, word = slot.partition(" ")
        if word == "times":
            value = self.numbers[first].value
            return WORDS_TIMES.get(int(value), f"{value} times")
        if word == "is":
            return "is" if self.numbers[first].value == 1 else "are"
        if word:
            return with_article(self.nouns[word])
        return self.word(slot)

    def word(self, slot: str) -> str:
        fixed = {"=": self.equation, "name": self.person.name, "other": self.other.name}
        pronouns = PRONOUNS[self.person.pronoun]
        if slot in fixed:
            return fixed[slot]
        if slot.lower() in pronouns:
            word = pronouns[slot.lower()]
            return word if slot.islower() else capitalised(word)
        if slot in self.numbers:
            return str(self.numbers[slot])
        if slot in self.nouns:
            return self.nouns[slot]
        return plural(self.nouns[slot.removesuffix("s")])
