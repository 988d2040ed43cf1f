"""Settings in memory that processes share: whole, the newest, each run its own."""

from __future__ import annotations

import multiprocessing
import threading
from contextlib import ExitStack

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl, LiveSettings
from mars_core.shared_control import SharedSettings

CONTEXT = multiprocessing.get_context("fork")
PAIRS = (("one", 0.1), ("tau", 0.2), ("verified", 1 / 3))


def test_a_place_follows_its_control_and_no_other():
    shared = SharedSettings(2)
    first, second = LiveControl(DecodeConfig(tau=0.9)), LiveControl(DecodeConfig(mode="one"))
    with shared.following(first) as one, shared.following(second) as two:
        assert one != two
        first.set(tau=0.1 + 0.2)
        assert shared.at(one).read() == LiveSettings("tau", 0.1 + 0.2)  # to the last bit
        second.set(mode="verified")
        second.stop()
        assert shared.at(two).read() == LiveSettings("verified", 0.9, True)
        assert shared.at(one).read() == LiveSettings("tau", 0.1 + 0.2)


def test_a_place_is_free_again_and_begins_anew():
    shared = SharedSettings(1)
    stopped = LiveControl(DecodeConfig())
    with shared.following(stopped) as place:
        stopped.stop()
    with shared.following(LiveControl(DecodeConfig(tau=0.5))) as again:
        assert again == place
        stopped.set(tau=0.1)  # of a run that is over
        assert shared.at(place).read() == LiveSettings("tau", 0.5)


def test_who_finds_no_place_waits_for_one():
    shared = SharedSettings(1)
    got = threading.Event()

    def follow():
        with shared.following(LiveControl(DecodeConfig())):
            got.set()

    with ExitStack() as stack:
        stack.enter_context(shared.following(LiveControl(DecodeConfig())))
        thread = threading.Thread(target=follow)
        thread.start()
        assert not got.wait(0.1)
    thread.join(10)
    assert got.is_set()


def read_all(control, results):
    """In another process: what is seen there until it stops."""
    seen = set()
    while not (now := control.read()).stop:
        seen.add((now.mode, now.tau))
    results.put(seen)


def test_another_process_never_sees_half_a_change():
    shared, results = SharedSettings(), CONTEXT.SimpleQueue()
    control = LiveControl(DecodeConfig(mode="one", tau=0.1))
    with shared.following(control) as place:
        reader = CONTEXT.Process(target=read_all, args=(shared.at(place), results))
        reader.start()
        for _ in range(5000):
            for mode, tau in PAIRS:
                control.set(mode=mode, tau=tau)
        control.stop()
        seen = results.get()
        reader.join(10)
    assert seen <= set(PAIRS)
    assert len(seen) > 1  # it did read meanwhile
