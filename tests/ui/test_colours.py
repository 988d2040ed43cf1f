"""The player's colours, read from its sheet: legible, and told apart in every colour mode."""

import itertools
import math
import re

import pytest

from mars_core.paths import assets_dir

TINTS = 6
# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as a dichromat sees it
VISION = {
    "common": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
SHEET = (assets_dir() / "player" / "colours.css").read_text(encoding="utf-8")
# from plain text to the deepest, as they are in the legends
COUNTS = ("panel", "level-2", "level-3", "level-4", "level-5", "level-8")
DOUBTS = ("panel", "doubt-3", "doubt-2", "doubt-1", "doubt-0")
CHOICES = ("panel", "same", "odd", "unseen")


def palette(selector):
    block = re.search(rf"^{re.escape(selector)} \{{(.*?)^\}}", SHEET, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"--mars-([\w-]+): (#[0-9a-f]{6});", block[1]))


PALETTES = {"light": palette(".mars"), "dark": palette(".dark .mars")}
themes = pytest.mark.parametrize("colours", PALETTES.values(), ids=PALETTES)


def linear(colour):
    values = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def luminance(colour):
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(colour, vision):
    rgb = linear(colour)
    seen = [
        min(1, max(0, sum(m * v for m, v in zip(row, rgb, strict=True)))) for row in VISION[vision]
    ]
    rows = (
        (0.4124, 0.3576, 0.1805, 0.95047),
        (0.2126, 0.7152, 0.0722, 1.0),
        (0.0193, 0.1192, 0.9505, 1.08883),
    )
    x, y, z = (
        cube(sum(m * v for m, v in zip(row, seen, strict=False)) / white) for *row, white in rows
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def cube(value):
    return value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116


def test_both_themes_define_the_same_colours():
    assert PALETTES["light"].keys() == PALETTES["dark"].keys()
    assert {f"tint-{i}" for i in range(TINTS)} <= PALETTES["light"].keys()


@themes
@pytest.mark.parametrize("tint", range(TINTS))
def test_text_and_numbers_are_legible_on_every_tint(colours, tint):
    ground = colours[f"tint-{tint}"]
    assert contrast(colours["ink"], ground) >= 4.5
    assert contrast(colours[f"edge-{tint}"], ground) >= 4.5
    # a bracket is a graphic: 3 is what WCAG asks for against what is around it
    assert contrast(colours[f"edge-{tint}"], colours["panel"]) >= 3


@themes
@pytest.mark.parametrize("ground", sorted({*COUNTS, *DOUBTS, *CHOICES, "lit"}))
def test_text_is_legible_on_the_grounds_of_the_other_modes(colours, ground):
    # numbers and marks: ink where tokens are counted, elsewhere mute, on the panel
    assert contrast(colours["ink"], colours[ground]) >= 4.5


@themes
@pytest.mark.parametrize(
    ("line", "ground"),
    [("mute", "doubt-3"), ("mute", "same"), ("mute", "unseen"), ("warn", "panel")],
)
def test_underlines_are_seen_on_their_grounds(colours, line, ground):
    assert contrast(colours[line], colours[ground]) >= 3


@themes
@pytest.mark.parametrize("tint", range(TINTS))
def test_the_wavy_line_is_seen_on_every_tint(colours, tint):
    assert contrast(colours["warn"], colours[f"tint-{tint}"]) >= 3


@themes
@pytest.mark.parametrize("name", ["ink", "mute", "warn", "accent"])
def test_other_text_is_legible(colours, name):
    assert contrast(colours[name], colours["panel"]) >= 4.5
    assert contrast(colours[name], colours["raised"]) >= 4.5


@themes
@pytest.mark.parametrize("vision", VISION)
def test_neighbouring_passes_differ_whatever_the_colour_vision(colours, vision):
    tints = [lab(colours[f"tint-{i}"], vision) for i in range(TINTS)]
    around = itertools.pairwise([*tints, tints[0]])
    assert min(math.dist(a, b) for a, b in around) >= 7


@themes
@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("scale", [COUNTS, DOUBTS], ids=["tokens per pass", "confidence"])
def test_a_scale_gets_deeper_step_by_step_whatever_the_colour_vision(colours, vision, scale):
    steps = [lab(colours[name], vision) for name in scale]
    assert min(math.dist(a, b) for a, b in itertools.pairwise(steps)) >= 6
    lightness = [step[0] for step in steps]
    # away from the panel: darker on a light page, lighter on a dark one
    assert lightness in (sorted(lightness), sorted(lightness, reverse=True))


@themes
@pytest.mark.parametrize("vision", VISION)
def test_agreement_and_difference_are_told_apart_whatever_the_colour_vision(colours, vision):
    kinds = [lab(colours[name], vision) for name in CHOICES]
    assert min(math.dist(a, b) for a, b in itertools.combinations(kinds, 2)) >= 10
    assert math.dist(kinds[CHOICES.index("same")], kinds[CHOICES.index("odd")]) >= 25
