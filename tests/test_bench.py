"""The benchmark: every way answers everything, its figures are right, and no time is asserted."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from mars_core import cli
from mars_core.answers import encode_all
from mars_core.baselines import generate_batch, jacobi, transformers_generate
from mars_core.errors import MarsError
from mars_core.evaluation import bench
from mars_core.evaluation.bench import BenchResult
from mars_core.evaluation.decoding import questions
from mars_core.evaluation.forwards import ROWS, floor, interleave
from mars_core.evaluation.results import read_result
from mars_core.evaluation.settings import BenchConfig
from mars_core.evaluation.ways import AR, GENERATE, Outcome, ways_of
from mars_core.models import hardware
from mars_core.models.load import load
from tests.tiny import tiny_checkpoint, tiny_llama

SMALL = BenchConfig(
    sets=("facts",),
    limit=3,
    batch_sizes=(1, 2),
    taus=(1.0, 0.0),
    batch_tau=0.5,
    windows=(2,),
    strategies=("none", "block", "cursor"),
    cache_blocks=(4,),
    max_new_tokens=8,
    repeats=3,
)
ONE = [
    AR,
    GENERATE,
    "verified",
    "tau 1",
    "tau 0",
    "tau 0.5, B = 2",
    "tau 0.5, paced",
    "prompt lookup",
    "Jacobi",
]
MANY = [
    AR,
    GENERATE,
    "tau 0.5, no cache",
    "tau 0.5, block 4",
    "tau 0.5, cursor",
    "tau 0.5, paced",
    "verified",
]
EXACT = [AR, GENERATE, "verified", "tau 1", "prompt lookup", "Jacobi"]


ONE_TOKEN = Outcome(((1,),), 1.0, 1, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("bench") / "tiny", model, mask=True))


@pytest.fixture(scope="module")
def loaded(folder):
    return load(folder, device="cpu", dtype="float64")


@pytest.fixture(scope="module")
def prompts(loaded):
    return encode_all(loaded, [question.messages for question in questions("facts", 6)])


@pytest.fixture(scope="module")
def result(loaded):
    told = []
    found = bench.bench(loaded, SMALL, report=told.append)
    assert told == list(range(1, 2 * 4 + 1))
    return found


def test_a_row_for_every_way_and_size(result):
    assert [(row.batch, row.way) for row in result.rows] == [
        *((1, way) for way in ONE),
        *((2, way) for way in MANY),
    ]
    for row in result.rows:
        assert row.n == 3
        for timing in (row.per_second, row.speed_up):
            assert 0 < timing.low <= timing.median <= timing.high
        assert row.peak_bytes > 0
        assert row.match == 1 or row.way not in EXACT
        assert 0 <= row.idle < 1
    by_way = {(row.batch, row.way): row for row in result.rows}
    assert by_way[1, AR].per_forward == by_way[1, "tau 1"].per_forward == 1
    assert by_way[1, "tau 0"].per_forward > 1
    assert by_way[1, "tau 0"].agreement is not None
    assert by_way[1, AR].masked == 0 < by_way[2, "tau 0.5, cursor"].masked
    none, cursor = (by_way[2, f"tau 0.5, {name}"] for name in ("no cache", "cursor"))
    assert none.per_forward == cursor.per_forward


def test_the_faster_ar_is_what_others_are_compared_with():
    def outcome(ms, tokens=10, **more):
        return Outcome(((1,) * tokens,), ms, tokens, tokens, **more)

    rounds = [
        {AR: outcome(40), GENERATE: outcome(20), "x": outcome(30, 30, agreed=3, seen=4)},
        {AR: outcome(80), GENERATE: outcome(40), "x": outcome(30, 30)},
        {AR: outcome(60), GENERATE: outcome(30), "x": outcome(30, 30)},
    ]
    ar, generate, x = bench.rows_of("facts", 1, rounds, dict.fromkeys(rounds[0], 1))
    assert (ar.speed_up.median, generate.speed_up.median, x.speed_up.median) == (0.5, 1, 3)
    assert (x.speed_up.low, x.speed_up.high) == (2.5, 3.5)
    assert x.per_second.median == 1000
    assert (x.agreement, x.match, ar.match) == (0.75, 0, 1)
    assert ar.agreement is None
    assert (ar.ms, generate.ms) == (6, 3)  # the second of three repeats took longest
    assert bench.rows_of("facts", 1, [], {}) == []


def test_idle_time_is_the_median_of_the_repeats():
    rounds = [{AR: Outcome(((1,),), 10.0, 1, 1, idle_ms=idle)} for idle in (1.0, 9.0, 2.0)]
    rounds = [{**one, GENERATE: one[AR]} for one in rounds]
    assert bench.rows_of("facts", 2, rounds, {AR: 1, GENERATE: 1})[0].idle == 0.2


def test_a_batch_has_as_many_prompts_as_it_says(loaded):
    few = replace(SMALL, sections=("prompts",), limit=1, batch_sizes=(2,), strategies=("cursor",))
    found = bench.bench(loaded, few)
    assert {(row.batch, row.n) for row in found.rows} == {(2, 2)}
    rounds = [dict.fromkeys((AR, GENERATE), ONE_TOKEN)] * 3
    left = bench.rows_of("facts", 8, rounds, {AR: 1, GENERATE: 1})
    assert {row.batch for row in left} == {1}  # all others had loops


def test_outcomes_of_more_prompts_add_up():
    both = Outcome(((1, 2),), 3.0, 2, 2, 1, 1, 1, 0.5, 10) + Outcome(((3,),), 4.0, 1, 1)
    assert both == Outcome(((1, 2), (3,)), 7.0, 3, 3, 1, 1, 1, 0.5, 10)
    assert both.tokens == 3


def test_ways_take_turns_prompt_by_prompt_or_with_all_of_a_batch():
    order = []

    def way(name):
        def answer(said):
            order.append((name, len(said)))
            return Outcome(((1,),) * len(said), 1.0, 1, 1)

        return answer

    ways = {name: way(name) for name in "ab"}
    bench.one_round(ways, ["x", "y"], 1, lambda name, said: ways[name](said))
    assert order == [("a", 1), ("b", 1)] * 2
    order.clear()
    bench.one_round(ways, ["x", "y"], 2, lambda name, said: ways[name](said))
    assert order == [("a", 2), ("b", 2)]


def test_prompts_with_a_loop_are_left_out(loaded, monkeypatch):
    monkeypatch.setattr(bench, "decode_ids", lambda tokenizer, ids: "la " * (40 if 7 in ids else 1))
    ways = {
        AR: lambda said: Outcome(tuple((int(x),) for x in said), 1.0, 1, 1),
        GENERATE: lambda said: Outcome(tuple((int(x),) for x in said), 1.0, 1, 1),
    }
    rows = bench.measure(loaded, ways, "facts", 1, ["5", "7"], 3, lambda: None)
    assert [row.n for row in rows] == [1, 1]
    assert bench.measure(loaded, ways, "facts", 1, ["7"], 3, lambda: None) == []


def test_repeats_are_interleaved_and_the_first_round_is_not_counted(loaded):
    order = []
    variants = {name: lambda name=name: order.append(name) for name in "ab"}
    times = interleave(loaded, variants, repeats=3)
    assert order == ["a", "b"] * 4
    assert {name: len(samples) for name, samples in times.items()} == {"a": 3, "b": 3}


def test_forwards_have_a_floor(result, loaded):
    assert [cost.rows for cost in result.forwards] == list(ROWS)
    head = loaded.model.get_output_embeddings().weight
    weights = loaded.weight_bytes
    tied = head is loaded.model.get_input_embeddings().weight
    cache = 128 * loaded.entry_bytes
    assert floor(loaded).read_bytes == weights + cache - (0 if tied else head.nbytes)
    assert result.floor.ms == pytest.approx(1000 * result.floor.read_bytes / result.floor.bandwidth)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_jacobi_gives_the_text_of_one_token_per_forward(loaded, prompts, window):
    eos = sorted(loaded.special.eos_ids)
    total, taken = 0, 0
    for prompt in prompts:
        ids, forwards = jacobi(loaded, prompt, 24, window, eos_ids=eos)
        assert ids == transformers_generate(loaded, prompt, 24, eos_ids=eos)
        total, taken = total + len(ids), taken + forwards
    assert taken < total  # it does keep guesses


def test_jacobi_ends_with_the_context(loaded, prompts):
    room = loaded.context_length - len(prompts[0])
    ids, _ = jacobi(loaded, prompts[0], 10**6, 4)
    assert ids == transformers_generate(loaded, prompts[0], room)


def test_generate_of_many_is_that_of_each(loaded, prompts):
    eos = sorted(loaded.special.eos_ids)
    assert len({len(prompt) for prompt in prompts}) > 1
    together = generate_batch(loaded, prompts, 12, eos_ids=eos)
    assert together == [transformers_generate(loaded, p, 12, eos_ids=eos) for p in prompts]


def test_a_draft_model_is_a_way_of_its_own(loaded):
    ways = ways_of(loaded, SMALL, 1, draft=loaded)
    said = [question.messages for question in questions("facts", 1)]
    assert ways["assisted"](said).answers == ways[AR](said).answers
    assert "assisted" not in ways_of(loaded, SMALL, 2, draft=loaded)


def test_windows_of_one_sequence():
    ways = replace(SMALL, block_size=4, windows=(2, 8)).of_one()
    sizes = {name: (how.block_size, how.adaptive_masks) for name, (how, _) in ways.items()}
    assert sizes["tau 0.5, B = 2"] == (2, False)
    assert sizes["tau 0.5, B = 8"] == (8, False)
    assert sizes["tau 0.5, paced"] == (4, True)


def test_plain_layers_are_a_way_of_their_own(folder, monkeypatch, capsys):
    monkeypatch.setattr(hardware, "fastest", lambda dtype, device, allowed: (allowed, 1.0))
    flags = "--sections prompts --sets facts --limit 1 --batch-sizes 1 2 --repeats 3 --unpacked"
    given = ["bench", "--model", folder, *flags.split(), "--dtype", "float32", "--json"]
    assert cli.main([*given, "--max-new-tokens", "4"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    found = [row for row in rows if row["way"] == "generate, unpacked"]
    assert [(row["batch"], row["match"]) for row in found] == [(1, 1.0), (2, 1.0)]


def test_without_a_mask_only_what_needs_none_is_measured(tmp_path):
    plain = load(str(tiny_checkpoint(tmp_path / "plain", mask=False)), device="cpu")
    assert list(ways_of(plain, SMALL, 1)) == [AR, GENERATE, "prompt lookup", "Jacobi"]
    assert list(ways_of(plain, SMALL, 2)) == [AR, GENERATE]


def test_json_is_read_back_and_the_table_names_its_conditions(result, tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(asdict(result)))
    again = read_result(path, BenchResult, "mars bench --json")
    path.write_text(json.dumps(asdict(again)))
    assert again == read_result(path, BenchResult, "mars bench --json")
    shown = bench.table(again)
    assert shown == bench.table(result)
    assert "3 prompts of facts, 2 at once" in shown
    assert "at most 8 tokens, prefill included; medians of 3 interleaved repeats" in shown
    assert "x floor" in shown
    assert result.about["commit"] in shown
    path.write_text('{"format": "mars-bench", "rows": []}')
    with pytest.raises(MarsError, match="prints: about"):
        read_result(path, BenchResult, "mars bench --json")


def test_the_command(folder, capsys):
    flags = "--sections prompts --sets facts --limit 1 --batch-sizes 1 --taus 0.5 --repeats 3"
    given = ["bench", "--model", folder, *flags.split(), "--max-new-tokens", "4", "--json"]
    assert cli.main(given) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["way"] for row in found["rows"]] == [
        AR, GENERATE, "verified", "tau 0.5", "tau 0.95, paced", "prompt lookup", "Jacobi"
    ]  # fmt: skip
    assert found["floor"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sets": ("nothing",)}, "prompt set"),
        ({"limit": 0}, "limit is 0"),
        ({"batch_sizes": (0,)}, "batch size is 0"),
        ({"cache_blocks": (0,)}, "cache block is 0"),
        ({"repeats": 2}, "at least 3"),
        ({"taus": (2.0,)}, "tau is 2"),
        ({"batch_tau": 2.0}, "tau is 2"),
        ({"windows": (2, 0)}, "block size is 0"),
        ({"drafts": 99}, "drafts is 99"),
    ],
)
def test_bad_settings_are_one_line(changes, words):
    with pytest.raises(MarsError, match=words):
        replace(SMALL, **changes)


def test_a_context_that_is_too_short_is_one_line(tmp_path):
    model = tiny_llama()
    model.config.max_position_embeddings = 100
    short = load(str(tiny_checkpoint(tmp_path / "short", model, mask=True)), device="cpu")
    with pytest.raises(MarsError, match="context of 100"):
        bench.bench(short, SMALL)
