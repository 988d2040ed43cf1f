"""Places in the line for the model."""

import threading

import pytest

from mars_core.ui.line import Line


def test_first_come_first_served_and_places_move_up():
    line = Line()
    with line.join() as first:
        with line.join() as second, line.join() as third:
            assert [ahead(None, 0) for ahead in (first, second, third)] == [0, 1, 2]
            assert len(line) == 3
        with line.join() as fourth:
            assert fourth(None, 0) == 1
    assert len(line) == 0


def test_whoever_waits_is_told_at_once_when_the_line_moves():
    line = Line()
    told = []

    def wait():
        with line.join() as ahead:
            standing.set()
            told.append(ahead(1, 30))

    standing = threading.Event()
    with line.join():
        thread = threading.Thread(target=wait)
        thread.start()
        standing.wait(10)
        assert told == []
    thread.join(10)
    assert told == [0]


def test_a_wait_ends_after_its_time_also_when_nothing_moved():
    line = Line()
    with line.join(), line.join() as ahead:
        assert ahead(1, 0.01) == 1


def test_one_that_breaks_off_leaves_the_line():
    line = Line()
    with pytest.raises(KeyError), line.join():
        raise KeyError
    assert len(line) == 0


def places(*aheads):
    return [ahead(None, 0) for ahead in aheads]


def test_whoever_asks_for_much_waits_behind_the_others():
    line = Line()
    with (
        line.join("greedy") as first,
        line.join("greedy") as second,
        line.join("greedy") as third,
        line.join("b") as other,
    ):
        assert places(first, other, second, third) == [0, 1, 2, 3]
        with line.join("b") as again, line.join("c") as last:
            assert places(first, other, last, second, again, third) == [0, 1, 2, 3, 4, 5]


def test_nobody_takes_the_model_from_the_run_that_has_it():
    line = Line()
    with line.join("a") as first, line.join("a") as second:
        assert places(first, second) == [0, 1]
    with line.join("a"):
        running = line.join("a")
        mine = running.__enter__()
    # the second run of a has the model now; b is before none that has it
    with line.join("b") as other:
        assert places(mine, other) == [0, 1]
    running.__exit__(None, None, None)


def test_one_whose_place_moves_down_is_told():
    line = Line()
    told = []
    with line.join("a"), line.join("a") as second:
        thread = threading.Thread(target=lambda: told.append(second(1, 30)))
        thread.start()
        with line.join("b"):
            thread.join(10)
    assert told == [2]
