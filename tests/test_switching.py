"""Which model takes the place of another, and whether it fits."""

from __future__ import annotations

import gc
import weakref

import pytest

from mars_core.config import DecodeConfig, LoadConfig
from mars_core.errors import MarsError
from mars_core.model_thread import ModelThread, ThreadedEngine
from mars_core.models import memory
from mars_core.models.load import load_as
from mars_core.models.progress import LatestProgress
from mars_core.switching import Room, Switcher, label, open_for_page
from mars_core.ui.conversation import conversation
from tests.tiny import save_adapter, tiny_checkpoint, tiny_llama, tiny_qwen2, torch

BASE = {"device": "cpu", "dtype": "float32", "packing": False}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    first = tiny_checkpoint(path / "first", mask=True)
    second = tiny_checkpoint(path / "second", tiny_qwen2(dtype=torch.float32), mask=True)
    adapter = save_adapter(path / "lora", tiny_llama(dtype=torch.float32))
    return str(first), str(second), str(adapter)


def switcher(folder):
    return Switcher(ModelThread(), LoadConfig(folder, mask_token="17", **BASE))


def test_what_is_wanted(folders):
    first, second, adapter = folders
    made = switcher(first)
    wanted = made.wanted(f" {second} ", "", "none")
    assert (wanted.model, wanted.adapter, wanted.mask_token) == (second, "auto", None)
    assert made.wanted(first, "", "none").mask_token == "17"
    assert made.chosen() == (first, "", "none")
    assert label(wanted) == "second"
    assert label(made.wanted("org/name", "", "none")) == "org/name"
    assert (wanted.device, wanted.dtype, wanted.packing) == ("cpu", "float32", False)
    assert made.wanted(first, "none", "nf4").adapter is None
    assert made.wanted(first, adapter, "nf4").adapter == adapter
    with pytest.raises(MarsError, match="choose one of"):
        made.wanted(first, "", "fp4")


def test_it_is_weighed(folders, monkeypatch):
    first, *_ = folders
    made = switcher(first)
    wanted = made.wanted("mars-qwen2.5-7b", "", "nf4")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 40 * 10**9)
    room = made.weigh(wanted, held=0)
    assert (room.fits, room.beside) == (True, True)
    assert "nf4, float32" in room.text
    assert "Licence: unknown" in room.text
    monkeypatch.setattr(memory, "free_bytes", lambda device: 6 * 10**9)
    assert not made.weigh(wanted, held=0).fits
    room = made.weigh(wanted, held=10 * 10**9)
    assert (room.fits, room.beside) == (True, False)
    with pytest.raises(MarsError, match=r"does not fit.*4 bits"):
        made.check(wanted, held=0)


@pytest.mark.parametrize("free", [10**12, 10**6])
def test_another_model_answers_and_the_old_one_is_freed(folders, monkeypatch, free):
    first, second, _ = folders
    made = switcher(first)
    engine = ThreadedEngine(*open_for_page(made.base, load_as), made._thread)
    old = weakref.ref(engine.loaded.model)
    said, config = conversation("Hi"), DecodeConfig(max_new_tokens=4)
    before = list(engine.generate(said, config))
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    wanted, steps = made.wanted(second, "", "none"), LatestProgress()
    room = made.check(wanted, held=10**9)
    assert room.beside == (free == 10**12)
    list(steps.until(made.switch(engine, wanted, room, steps)))
    assert steps.text.startswith("loading")
    after = list(engine.generate(said, config))
    assert (before[0].model.name, after[0].model.name) == ("first", "second")
    assert after[0].model.architecture == "Qwen2ForCausalLM"
    assert made.chosen() == (second, "", "none")
    del before, after
    gc.collect()
    assert old() is None


def test_an_adapter_that_is_not_there_is_said_before_anything_is_freed(folders):
    made = switcher(folders[0])
    made.fetch(made.wanted(folders[0], folders[2], "none"))
    with pytest.raises(MarsError, match="neither a folder nor"):
        made.fetch(made.wanted(folders[0], "nowhere", "none"))


def test_a_run_asked_for_while_models_change_waits_for_the_new_one(folders):
    """Also when whoever changed it has gone."""
    first, second, _ = folders
    made = switcher(first)
    engine = ThreadedEngine(*open_for_page(made.base, load_as), made._thread)
    old = weakref.ref(engine.loaded.model)
    wanted = made.wanted(second, "", "none")
    changing = made.switch(engine, wanted, Room("", True, False))
    said, config = conversation("Hi"), DecodeConfig(max_new_tokens=2)
    engine.encode(said, config)
    assert next(engine.generate(said, config)).model.name == "second"
    assert engine.loaded.name == "second"
    assert changing.done()
    assert old() is None


def test_progress_is_told_when_it_changes():
    steps = LatestProgress("first")
    thread = ModelThread()
    told = []
    future = thread.submit(lambda: steps("download", 1, 4))
    future.result(10)
    assert list(steps.until(future)) == told
    assert steps.text == "downloading 25% …"
    steps("load", 0, None)
    assert steps.text == "loading …"

    def fail():
        raise MarsError("gone")

    with pytest.raises(MarsError, match="gone"):
        list(steps.until(thread.submit(fail)))
