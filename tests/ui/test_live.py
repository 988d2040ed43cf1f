"""Which run a visitor's slider and Stop reach."""

from mars_core.config import DecodeConfig
from mars_core.ui.conversation import conversation
from mars_core.ui.live import LiveRuns, Run

CONFIG = DecodeConfig()


def ask(runs, visitor):
    run = Run.of(conversation("Why?"), CONFIG)
    runs.ask(visitor, run)
    return run


def test_a_new_run_stops_the_one_before_and_both_begin_in_order():
    runs = LiveRuns()
    first = ask(runs, "a")
    assert runs.begin("a") is first
    second, third = ask(runs, "a"), ask(runs, "a")
    assert [r.control.read().stop for r in (first, second, third)] == [True, True, False]
    assert [runs.begin("a"), runs.begin("a"), runs.begin("a")] == [second, third, None]


def test_steering_reaches_a_waiting_run_and_only_its_own_visitor():
    runs = LiveRuns()
    mine, other = ask(runs, "a").control, ask(runs, "b").control
    runs.set("a", "one", 0.25)
    runs.stop("a")
    assert (mine.read().mode, mine.read().tau, mine.read().stop) == ("one", 0.25, True)
    assert other.read().tau == CONFIG.tau
    assert not other.read().stop


def test_the_end_of_an_old_run_leaves_the_new_one_steerable():
    runs = LiveRuns()
    old, new = ask(runs, "a"), ask(runs, "a")
    runs.end("a", old)
    runs.set("a", "tau", 0.5)
    assert new.control.read().tau == 0.5
    runs.end("a", new)
    assert len(runs) == 0


def test_leaving_stops_everything_and_forgets_the_visitor():
    runs = LiveRuns()
    first, second = ask(runs, "a"), ask(runs, "a")
    runs.leave("a")
    assert first.control.read().stop
    assert second.control.read().stop
    assert len(runs) == 0
    assert runs.begin("a") is None


def test_strangers_are_ignored():
    runs = LiveRuns()
    runs.set("nobody", "tau", 0.5)
    runs.stop("nobody")
    runs.leave("nobody")
    assert runs.begin("nobody") is None
