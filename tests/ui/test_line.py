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
