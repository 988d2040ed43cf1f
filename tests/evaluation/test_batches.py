"""`mars bench-batch`: every way answers everything, and its row says so."""

from __future__ import annotations

import json

import pytest

from mars_core import cli
from mars_core.errors import MarsError
from mars_core.evaluation.batches import measure, table
from mars_core.evaluation.settings import BatchConfig
from mars_core.models.load import load
from tests.tiny import tiny_checkpoint, tiny_llama

SMALL = BatchConfig(
    set="facts",
    limit=4,
    batch_sizes=(1, 3),
    strategies=("none", "block", "cursor"),
    cache_blocks=(4, 8),
    tau=0.5,
    max_new_tokens=6,
    repeats=2,
)
WAYS = [
    "AR, cursor",
    "tau, no cache",
    "tau, block 4",
    "tau, block 8",
    "tau, cursor",
    "tau, cursor, paced",
    "verified, cursor",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("bench") / "tiny-model", model, mask=True))


@pytest.fixture(scope="module")
def result(folder):
    told = []
    found = measure(load(folder, device="cpu", dtype="float64"), SMALL, told.append)
    assert told == list(range(1, 2 * 2 * len(WAYS) + 1))
    return found


def test_a_row_for_every_way_and_size(result):
    assert [(row.batch_size, row.way) for row in result.rows] == [
        (size, way) for size in (1, 3) for way in WAYS
    ]
    for row in result.rows:
        assert row.figures.rows == 4
        assert row.figures.places == row.batch_size
        assert row.per_second > 0
        middle, low, high = row.speed_up
        assert low <= middle <= high
        assert row.cache_bytes > 0
    by_name = {(row.batch_size, row.way): row for row in result.rows}
    for size in (1, 3):
        ar = by_name[size, "AR, cursor"]
        assert ar.speed_up == (1, 1, 1)
        assert ar.figures.per_forward == 1
        assert ar.figures.masked == 0
        assert by_name[size, "tau, cursor"].figures.masked > 0
        assert by_name[size, "verified, cursor"].figures.tokens == ar.figures.tokens
        cursor, none = (by_name[size, f"tau, {name}"].figures for name in ("cursor", "no cache"))
        assert cursor.forwards == none.forwards
        assert cursor.tokens == none.tokens


def test_the_table_names_its_conditions(result):
    text = table(result)
    assert "4 prompts of facts, tau 0.5, B = 4, at most 6 tokens, 2 interleaved repeats" in text
    assert text.count("verified, cursor") == 2


def test_the_command(folder, capsys):
    given = "bench-batch --set facts --limit 2 --batch-sizes 2 --strategies cursor --repeats 1"
    flags = ["--model", folder, "--max-new-tokens", "4", "--json"]
    assert cli.main([*given.split(), *flags]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["way"] for row in rows] == [WAYS[0], *WAYS[-3:]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"set": "nothing"}, "prompt set"),
        ({"limit": 0}, "limit is 0"),
        ({"batch_sizes": (0,)}, "batch size is 0"),
        ({"cache_blocks": (0,)}, "cache block is 0"),
        ({"repeats": 0}, "repeats is 0"),
        ({"tau": 2.0}, "tau is 2"),
    ],
)
def test_bad_settings_are_one_line(changes, words):
    with pytest.raises(MarsError, match=words):
        BatchConfig(**changes).ways()
