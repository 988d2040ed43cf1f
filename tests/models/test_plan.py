"""What a model takes, from its config alone, and the command that says so."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config

from mars_core import cli
from mars_core.errors import MarsError
from mars_core.evaluation.memory import Measured, Task, measured
from mars_core.models import catalog, plan
from mars_core.models.hardware import choose_arithmetic
from mars_core.models.plan import Format
from mars_core.models.sizes import Sizes
from tests.tiny import HEAD_DIM, tiny_checkpoint, tiny_llama, tiny_qwen2, tiny_qwen3

GIB = 2**30


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen2, tiny_qwen3])
@pytest.mark.parametrize("tied", [False, True])
def test_sizes_are_those_of_the_model(make, tied):
    model = make(tied=tied)
    sizes = Sizes.of(model.config)
    assert sizes.parameters == sum(p.numel() for p in model.parameters())
    assert sizes.entry == 2 * 2 * 2 * HEAD_DIM  # keys and values, layers, heads
    assert sizes.weights(torch.float64) == 8 * sizes.parameters
    assert sizes.cache(10, torch.bfloat16) == 10 * 2 * sizes.entry
    by_kind = [sizes.weights(torch.bfloat16, kind) for kind in ("none", "int8", "nf4")]
    assert by_kind == sorted(by_kind, reverse=True)


def test_models_without_linear_layers_have_sizes_too():
    config = GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=100, n_positions=64)
    sizes = Sizes.of(config)
    assert sizes.parameters == GPT2LMHeadModel(config).num_parameters()
    assert sizes.weights(torch.float32, "nf4") == sizes.weights(torch.float32)


def test_heads_may_have_a_size_of_their_own():
    config = Qwen3Config(
        num_hidden_layers=3, num_key_value_heads=2, num_attention_heads=4, hidden_size=64,
        head_dim=32, intermediate_size=96, vocab_size=100,
    )  # fmt: skip
    assert Sizes.of(config).entry == 2 * 3 * 2 * 32


@pytest.mark.parametrize(
    ("name", "parameters", "entry"),
    [
        ("smollm2-135m", 134_515_008, 2 * 30 * 3 * 64),
        ("mars-qwen2.5-0.5b", 494_032_768, 2 * 24 * 2 * 64),
        ("mars-qwen2.5-7b", 7_615_616_512, 2 * 28 * 4 * 128),
    ],
)
def test_catalogued_models_need_no_download(tmp_path, name, parameters, entry):
    sizes = Sizes.of(plan.config_of(name, tmp_path))
    assert (sizes.parameters, sizes.entry) == (parameters, entry)
    assert catalog.find(name).disk_bytes > 2 * parameters


def test_every_catalogued_model_can_be_planned(tmp_path):
    for name in catalog.names():
        assert Sizes.of(plan.config_of(name, tmp_path)).context >= 8192


def test_7b_on_the_cards_that_people_have(tmp_path):
    """8 GB hold it in 4 bits, 24 GB in 16; 6 GB do not, whatever the format."""
    sizes = Sizes.of(plan.config_of("mars-qwen2.5-7b", tmp_path))
    full, half, eight, four = plan.formats()

    def fits(form, gigabytes):
        return plan.longest(sizes, form, plan.card_budget(gigabytes), on_cpu=False) > 2048

    assert [fits(four, g) for g in (6, 8, 12, 16, 24)] == [False, True, True, True, True]
    assert [fits(eight, g) for g in (6, 8, 12, 16, 24)] == [False, False, True, True, True]
    assert [fits(half, g) for g in (12, 16, 24)] == [False, True, True]
    assert not fits(full, 24)


def test_a_packed_head_that_is_also_the_embedding_is_there_twice():
    for tied in (True, False):
        config = tiny_llama().config
        config.tie_word_embeddings = tied
        sizes = Sizes.of(config)
        plain, packed = (
            plan.needs(sizes, Format("float32", packed=packed), 64) for packed in (False, True)
        )
        assert packed.total - plain.total == tied * 4 * sizes.head
        assert packed.cache == plain.cache


def test_the_longest_context_is_the_longest():
    sizes = Sizes.of(tiny_llama().config)
    for budget in (10**5, 10**6, 2 * 10**6, 10**9):
        for form in plan.formats():
            longest = plan.longest(sizes, form, budget, rows=3)
            if longest:
                assert plan.needs(sizes, form, longest, 3).total <= budget
            if longest < sizes.context:
                assert plan.needs(sizes, form, longest + 1, 3).total > budget
    assert plan.longest(sizes, Format("float32"), 10**9) == sizes.context


def test_of_a_hub_model_the_config_alone_is_fetched(tmp_path, monkeypatch):
    folder = tiny_checkpoint(tmp_path / "hub")
    asked = []

    def snapshot(hub_id, **options):
        asked.append((hub_id, options["allow_patterns"]))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert Sizes.of(plan.config_of("org/name")).context == 256
    assert asked == [("org/name", ["config.json"])]


def run(capsys, *arguments):
    assert cli.main(["plan", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_table(tmp_path, capsys):
    shown = run(capsys, "mars-qwen2.5-7b", "--models-dir", tmp_path, "--contexts", 512, 100_000)
    assert "7,616 million parameters, no adapter" in shown
    assert "licence: unknown" in shown
    rows = {line[:17].strip(): line[17:].split("  ") for line in shown.splitlines()}
    assert rows["nf4, bfloat16"]
    assert "32,768" in shown  # a longer context than the model has is its own
    assert "100,000" not in shown
    assert "24 GB" in shown


def test_what_cannot_be_loaded_does_not_fit(capsys, tmp_path, monkeypatch):
    """Merging an adapter takes more than the model afterwards."""
    monkeypatch.setattr("mars_core.models.memory.free_bytes", lambda device: 40 * 10**9)

    def fitting(*more):
        found = run(capsys, "mars-qwen2.5-7b", "--models-dir", tmp_path, "--json", *more)
        return [line["here"] > 0 for line in json.loads(found)["lines"]]

    assert fitting() == [True, True, True, True]
    assert fitting("--adapter", "org/lora") == [False] * 4


def test_rows_take_cache_and_workspace():
    sizes = Sizes.of(tiny_llama().config)
    one, four = (plan.needs(sizes, Format("float32"), 64, rows) for rows in (1, 4))
    assert four.weights == one.weights
    assert four.cache == 4 * one.cache
    assert four.workspace > 2 * one.workspace


def test_as_json(tmp_path, capsys):
    folder = tiny_checkpoint(tmp_path / "tiny")
    found = json.loads(run(capsys, folder, "--json", "--contexts", 64, "--rows", 2, "--cards", 8))
    line = found["lines"][1]
    packed = choose_arithmetic("bfloat16", torch.device("cpu")).packed
    assert line["form"] == {"dtype": "bfloat16", "quantization": "none", "packed": packed}
    assert line["needs"]["64"]["cache"] == 2 * 64 * line["cache_per_token"]
    assert line["cards"] == {"8.0": 256}
    assert line["measured"] == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "unknown model"),
        (["--contexts", "0"], "a context is 0"),
        (["--rows", "0"], "rows is 0"),
        (["--cards", "-1"], "a card is -1"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, words):
    assert cli.main(["plan", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1


def test_a_tiny_model_can_be_measured(tmp_path, capsys):
    folder = tiny_checkpoint(tmp_path / "tiny")
    shown = run(capsys, folder, "--contexts", 64, "--cards", "--measure")
    (heading,) = [i for i, line in enumerate(shown.splitlines()) if "measured" in line]
    assert len(shown.splitlines()[heading + 1 :]) == 4


def test_a_process_that_dies_is_said(monkeypatch):
    from concurrent.futures.process import BrokenProcessPool

    class Pool:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def submit(self, *_):
            raise BrokenProcessPool

    monkeypatch.setattr("mars_core.evaluation.memory.ProcessPoolExecutor", Pool)
    with pytest.raises(MarsError, match="perhaps for lack of memory"):
        measured(Task("m", None, "cpu", None, Format("float32"), 1, 64))


@pytest.mark.model
@pytest.mark.parametrize(
    "form",
    [Format("float32"), Format("bfloat16", packed=True), Format("bfloat16", "nf4")],
    ids=lambda f: f.name,
)
def test_the_default_model_takes_what_was_planned(form):
    """Within a fifth, since a process's memory is not only its tensors; `--measure` shows it."""
    found: Measured = measured(Task("smollm2-135m", None, "cpu", None, form, 1, 512))
    sizes = Sizes.of(plan.config_of("smollm2-135m"))
    assert found.note is None
    assert found.bytes == pytest.approx(plan.needs(sizes, form, 512).total, rel=0.2)


@pytest.mark.model
def test_the_catalogue_knows_the_default_models_shape():
    entry = catalog.find("smollm2-135m")
    config = plan.config_of(entry.name).to_dict()
    assert (Path(plan.fetch.models_dir()) / entry.name / "config.json").is_file()
    assert {key: config[key] for key in entry.shape} == dict(entry.shape)
