"""The paper's checkpoints, from a stand-in in the hub's own cache: their shape, not their size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub._snapshot_download import snapshot_download
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from mars_core import cli
from mars_core.config import DecodeConfig, LoadConfig
from mars_core.control import LiveControl
from mars_core.models import catalog
from mars_core.models.load import load, load_as
from mars_core.race.lanes import open_racer
from mars_core.race.settings import RaceConfig
from mars_core.trace import Message
from tests.tiny import byte_level, edit, vocabulary

MASK_ID = 151_665
ROWS = 151_936  # of the embedding, padded
REVISION = "0" * 40
PLAIN = {"device": "cpu", "dtype": "float32", "packing": False}


def tokenizer(mask: bool) -> PreTrainedTokenizerFast:
    """A vocabulary as large as Qwen2.5's, with `<|mask|>` behind it where it was added."""
    specials = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokens, merges = vocabulary(())
    tokens += [f"<unused {i}>" for i in range(len(tokens), MASK_ID - len(specials))]
    return byte_level(tokens, merges, (*specials, "<|mask|>") if mask else specials)


def stand_in(cache: Path, hub_id: str, seed: int, mask: bool) -> None:
    """Tiny weights in shards, laid out as the hub's client keeps them, under the authors' name."""
    folder = cache / f"models--{hub_id.replace('/', '--')}"
    path = folder / "snapshots" / REVISION
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=ROWS, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        tie_word_embeddings=True, eos_token_id=MASK_ID - 1, initializer_range=0.2,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(path, max_shard_size="12MB")
    assert (path / "model.safetensors.index.json").is_file()
    edit(path / "config.json", model_type="a2d-qwen2", architectures=["A2DQwen2LMHeadModel"])
    tokenizer(mask).save_pretrained(path)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(REVISION)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    stand_in(folder, "Xalphinions/MARS-Qwen2.5-0.5B-blk4", 1, mask=True)
    stand_in(folder, "Xalphinions/MARS-Qwen2.5-0.5B-AR-SFT", 2, mask=True)
    stand_in(folder, "Xalphinions/MARS-Qwen2.5-7B-blk8", 3, mask=False)
    return folder


@pytest.fixture
def offline(cache, monkeypatch):
    """The hub's client as it is, with that cache and no network."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.file_download, "HF_HUB_CACHE", str(cache), raising=False)


def test_names_and_blocks():
    for size in ("0.5b", "7b"):
        blocks = {
            name: catalog.find(f"mars-qwen2.5-{size}{name}").block_size
            for name in ("", "-blk8", "-blk16", "-ar-sft")
        }
        assert blocks == {"": 4, "-blk8": 8, "-blk16": 16, "-ar-sft": None}
        assert catalog.find(f"mars-qwen2.5-{size}").baseline == f"mars-qwen2.5-{size}-ar-sft"
    assert catalog.find("mars-qwen2.5-7b").hub_id == "Xalphinions/MARS-Qwen2.5-7B-blk4"


def test_they_load_as_plain_qwen2(offline):
    found = load("mars-qwen2.5-0.5b", **PLAIN)
    assert type(found.model) is Qwen2ForCausalLM
    assert (found.special.mask_id, found.mask_token) == (MASK_ID, "<|mask|>")
    assert (found.trained, found.block_size) == (True, 4)
    assert found.source == "hub Xalphinions/MARS-Qwen2.5-0.5B-blk4"
    assert found.licence == catalog.UNKNOWN_LICENCE
    assert found.adapter is None
    assert found.model.get_input_embeddings().num_embeddings == ROWS


def test_the_catalogue_knows_the_mask_where_the_tokenizer_does_not(offline):
    found = load("mars-qwen2.5-7b-blk8", **PLAIN)
    assert (found.special.mask_id, found.mask_token) == (MASK_ID, None)
    assert (found.trained, found.block_size) == (True, 8)


def test_the_baseline_is_not_trained_for_mars(offline):
    """Though its tokenizer may know the mask."""
    found = load("mars-qwen2.5-0.5b-ar-sft", **PLAIN)
    assert (found.trained, found.block_size, found.special.mask_id) == (False, None, MASK_ID)


def test_it_races_against_its_baseline(offline):
    config = LoadConfig("mars-qwen2.5-0.5b", device="cpu", dtype="float32", packing=False)
    loaded = []

    def watched(wanted):
        loaded.append(wanted.model)
        return load_as(wanted)

    _, racer = open_racer(config, watched)
    decode = DecodeConfig(max_new_tokens=4)
    lanes = RaceConfig(decode, ("ar", "mars", "original"), repeats=1)
    *_, verdict = racer.race([Message(role="user", content="Hi")], lanes, LiveControl(decode))
    assert len(verdict.lanes) == 3
    assert loaded == ["mars-qwen2.5-0.5b", "mars-qwen2.5-0.5b-ar-sft"]


def test_fetch_finds_it_and_says_the_licence(offline, capsys):
    assert cli.main(["fetch", "mars-qwen2.5-0.5b"]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip().endswith(REVISION)
    assert "licence unknown (its authors name none)" in shown.err


def test_what_is_not_cached_is_said(offline, problem, monkeypatch):
    message = problem(load, "mars-qwen2.5-7b", **PLAIN)
    assert "mars fetch mars-qwen2.5-7b" in message
    assert "HF_HOME" in message
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    message = problem(load, "mars-qwen2.5-7b", **PLAIN)
    assert "it needs 15400 MB" in message
    assert load("mars-qwen2.5-0.5b", **PLAIN).trained  # what is there needs no room


def test_the_command_line_starts_offline_from_the_cache(cache, tmp_path):
    """As a person runs it, in a process of its own."""
    code = [sys.executable, "-m", "mars_core.cli", "generate", "Hi", "--model", "mars-qwen2.5-0.5b"]
    code += ["--json", "--max-new-tokens", "4", "--dtype", "float32", "--device", "cpu"]
    hub = {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "MARS_MODELS_DIR": str(tmp_path)}
    done = subprocess.run(code, env={**os.environ, **hub}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    header = json.loads(done.stdout.splitlines()[0])
    assert header["model"]["block_size"] == 4
    assert header["memory"]["weights"] > 4 * ROWS * 32
    assert "its licence is unknown" in done.stderr
    assert not any(tmp_path.iterdir())
