"""Many clients at once on a tiny model, through the served page: all answered, none mixed."""

import threading

import pytest
import torch
from gradio_client import Client

from mars_core.config import DecodeConfig
from mars_core.engine import Engine
from mars_core.models.load import load
from mars_core.trace import parse_record
from mars_core.ui.conversation import conversation
from mars_core.ui.demo import build_demo, launch
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.ui.scripted import ready

CLIENTS = 20
TAUS = (0.0, 0.3, 0.9, 1.0)
LENGTH = 12


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    model = tiny_llama(sharpen=3.0, dtype=torch.float32)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"), model, mask=True)
    return Engine(load(str(folder), device="cpu", dtype="float32"))


def test_twenty_clients_at_once(engine):
    demo = build_demo(ready(engine))
    address = launch(demo, "127.0.0.1", None)
    answers = {}

    def call(index):
        client = Client(address, verbose=False)
        together.wait()
        answers[index] = client.predict(
            f"question {index}", tau=TAUS[index % 4], max_new_tokens=LENGTH, api_name="/generate"
        )

    together = threading.Barrier(CLIENTS)
    threads = [threading.Thread(target=call, args=(index,)) for index in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    demo.close()
    assert answers.keys() == set(range(CLIENTS))
    for index, answer in answers.items():
        header, *_, done = map(parse_record, answer.splitlines())
        assert header.prompt.messages[-1].content == f"question {index}"
        config = DecodeConfig(tau=TAUS[index % 4], max_new_tokens=LENGTH)
        alone = list(engine.generate(conversation(f"question {index}"), config))[-1]
        assert (done.text, done.forwards) == (alone.text, alone.forwards)
