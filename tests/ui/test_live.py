"""Which run a visitor's slider and Stop reach."""

from mars_core.config import DecodeConfig
from mars_core.ui.live import LiveRuns

CONFIG = DecodeConfig()


def test_a_new_run_stops_the_one_before_and_both_begin_in_order():
    runs = LiveRuns()
    first = runs.ask("a", CONFIG)
    assert runs.begin("a") is first
    second = runs.ask("a", CONFIG)
    third = runs.ask("a", CONFIG)
    assert [c.read().stop for c in (first, second, third)] == [True, True, False]
    assert [runs.begin("a"), runs.begin("a"), runs.begin("a")] == [second, third, None]


def test_steering_reaches_a_waiting_run_and_only_its_own_visitor():
    runs = LiveRuns()
    mine, other = runs.ask("a", CONFIG), runs.ask("b", CONFIG)
    runs.set("a", "one", 0.25)
    runs.stop("a")
    assert (mine.read().mode, mine.read().tau, mine.read().stop) == ("one", 0.25, True)
    assert other.read().tau == CONFIG.tau
    assert not other.read().stop


def test_the_end_of_an_old_run_leaves_the_new_one_steerable():
    runs = LiveRuns()
    old = runs.ask("a", CONFIG)
    new = runs.ask("a", CONFIG)
    runs.end("a", old)
    runs.set("a", "tau", 0.5)
    assert new.read().tau == 0.5
    runs.end("a", new)
    assert len(runs) == 0


def test_leaving_stops_everything_and_forgets_the_visitor():
    runs = LiveRuns()
    first = runs.ask("a", CONFIG)
    second = runs.ask("a", CONFIG)
    runs.leave("a")
    assert first.read().stop
    assert second.read().stop
    assert len(runs) == 0
    assert runs.begin("a") is None


def test_strangers_are_ignored():
    runs = LiveRuns()
    runs.set("nobody", "tau", 0.5)
    runs.stop("nobody")
    runs.leave("nobody")
    assert runs.begin("nobody") is None
