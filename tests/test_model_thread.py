"""Everything a model computes happens in one thread, and nothing else changes."""

import threading
import weakref

import pytest

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.model_thread import ModelThread, ThreadedEngine, in_background
from mars_core.ui.conversation import conversation
from tests.ui.scripted import EOS, ScriptedEngine

PASSES = [["The", " sky"], [" is"], [" blue", ".", EOS]]
CONFIG = DecodeConfig()


class Watched(ScriptedEngine):
    """Notes the threads in which its records are made."""

    def _records(self, messages, config, control):
        self.threads = set()
        try:
            for record in super()._records(messages, config, control):
                self.threads.add(threading.current_thread().name)
                yield record
        finally:
            self.threads.add(threading.current_thread().name)


def test_results_and_errors_come_back_in_order():
    thread = ModelThread()
    made = []
    futures = [thread.submit(lambda i=i: made.append(i) or i) for i in range(5)]
    assert [future.result(10) for future in futures] == made == [0, 1, 2, 3, 4]

    def fail():
        raise MarsError("no such model")

    with pytest.raises(MarsError, match="no such model"):
        thread.submit(fail).result(10)
    assert thread.submit(lambda: "still here").result(10) == "still here"


def test_records_are_those_of_the_engine_and_made_in_the_thread():
    plain = ScriptedEngine(PASSES)
    engine = Watched(PASSES)
    threaded = ThreadedEngine(engine, None, ModelThread())
    assert threaded.loaded is engine.loaded
    said = conversation("Why?")
    assert list(threaded.generate(said, CONFIG)) == list(plain.generate(said, CONFIG))
    assert engine.threads == {"model"}


def test_closing_ends_the_run_in_the_thread_too():
    engine = Watched([["a"]] * 50)
    records = ThreadedEngine(engine, None, ModelThread()).generate(conversation("Why?"), CONFIG)
    next(records)
    next(records)
    assert engine.running == 1
    records.close()
    assert engine.running == 0
    assert engine.threads == {"model"}


def test_bad_input_raises_before_the_first_record():
    class Refuses(ScriptedEngine):
        def generate(self, messages, config, control=None):
            self.encode(messages, config)
            return super().generate(messages, config, control)

    threaded = ThreadedEngine(Refuses([], error="the prompt is too long"), None, ModelThread())
    with pytest.raises(MarsError, match="too long"):
        threaded.generate(conversation("Why?"), CONFIG)


class Held:
    """An engine that can be watched going."""

    def __init__(self, name):
        self.loaded = name

    def encode(self, messages, config):
        return self.loaded


def switching(first="first", reopened="first again"):
    old = Held(first)
    threaded = ThreadedEngine(old, None, ModelThread(), lambda: (Held(reopened), None))
    return threaded, weakref.ref(old)


def test_another_engine_takes_its_place():
    threaded, old = switching()
    seen = []

    def open_other():
        seen.append(old() is not None)
        return Held("other"), None

    threaded.switch(open_other, beside=True).result(10)
    assert threaded.present
    assert threaded.loaded == threaded.encode([], CONFIG) == "other"
    assert seen == [True]
    assert old() is None


def test_where_there_is_no_room_the_old_one_is_freed_first():
    threaded, old = switching()
    seen = []

    def open_other():
        seen.append((old() is not None, threaded.present))
        return Held("other"), None

    threaded.switch(open_other, beside=False).result(10)
    assert seen == [(False, False)]
    assert threaded.loaded == "other"


@pytest.mark.parametrize(("beside", "then"), [(True, "first"), (False, "first again")])
def test_a_model_that_cannot_be_had_leaves_the_old_one(beside, then):
    threaded, _ = switching()

    def fail():
        raise MarsError("it is incomplete")

    with pytest.raises(MarsError, match="incomplete"):
        threaded.switch(fail, beside=beside).result(10)
    assert threaded.loaded == then


def test_without_a_model_it_says_so():
    threaded = ThreadedEngine(Held("first"), None, ModelThread())

    def fail():
        raise MarsError("it is incomplete")

    with pytest.raises(MarsError):
        threaded.switch(fail, beside=False).result(10)
    assert not threaded.present
    with pytest.raises(MarsError, match="choose one under Model"):
        threaded.generate([], CONFIG)


def test_work_in_the_background():
    assert in_background(lambda: threading.current_thread().daemon).result(10)
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0).result(10)
