"""Perplexity of given answers, against sums by hand."""

from __future__ import annotations

import json
import math

import pytest
import torch

from mars_core import cli
from mars_core.chat import encode_chat
from mars_core.evaluation.perplexity import measure, table
from mars_core.models.load import load
from mars_core.trace import Message
from tests.tiny import EOS_ID, save_adapter, tiny_checkpoint, tiny_llama
from tests.training.runs import PLAIN

ROWS = [
    {"prompt": "the sky", "response": "is blue and wide"},
    {"prompt": "a cat", "response": "sat on the", "finished": False},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny_checkpoint(tmp_path_factory.mktemp("perplexity") / "tiny", tiny_llama(seed=5)))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def by_hand(loaded, row):
    """(loss, tokens) of an answer: a sum over whole logits."""
    prompt, _ = encode_chat(loaded.tokenizer, [Message(role="user", content=row["prompt"])])
    answer = loaded.tokenizer(row["response"], add_special_tokens=False)["input_ids"]
    answer += [EOS_ID] if row.get("finished", True) else []
    ids = [*prompt, *answer]
    scores = loaded.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    found = [float(scores[place - 1, ids[place]]) for place in range(len(prompt), len(ids))]
    return -sum(found), len(answer)


def test_it_is_what_the_whole_logits_say(folder, file):
    loaded = load(folder, **PLAIN)
    losses, tokens = zip(*(by_hand(loaded, row) for row in ROWS), strict=True)
    result = measure([lambda: loaded], file)
    assert (result.n, result.tokens) == (2, sum(tokens))
    assert result.perplexity[0].value == pytest.approx(math.exp(sum(losses) / sum(tokens)))
    assert result.ratio is None
    first = measure([lambda: loaded], file, limit=1)
    assert first.perplexity[0].value == pytest.approx(math.exp(losses[0] / tokens[0]))


def test_an_adapter_is_compared_with_the_own_weights(folder, file, tmp_path, capsys):
    adapter = str(save_adapter(tmp_path / "lora", tiny_llama(seed=5, dtype=torch.float32)))
    loaders = [lambda: load(folder, **PLAIN), lambda: load(folder, adapter=adapter, **PLAIN)]
    result = measure(loaders, file)
    own, tuned = (found.value for found in result.perplexity)
    assert own != pytest.approx(tuned, rel=1e-3)
    assert result.ratio.value == pytest.approx(tuned / own)
    assert "lora" in table(result)
    command = ["evaluate", "perplexity", file, "--model", folder, "--device", "cpu"]
    assert cli.main([*command, "--dtype", "float64", "--adapter", adapter, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ratio"]["value"] == pytest.approx(result.ratio.value, rel=1e-4)
    assert cli.main(command) == 0
    assert "own weights" in capsys.readouterr().out
    assert cli.main(["evaluate", "perplexity", "nowhere.jsonl", "--model", folder]) == 2
    assert "neither a file" in capsys.readouterr().err
