"""Only the producer's time counts."""

from mars_core.stopwatch import Stopwatch


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_consumer_time_is_not_measured():
    clock = Clock()

    def work():
        for seconds in (1, 2, 3):
            clock.now += seconds
            yield seconds

    measured = []
    for item, ms in Stopwatch(clock).timed(work()):
        measured.append((item, ms))
        clock.now += 100  # what the consumer does with it
    assert measured == [(1, 1000), (2, 2000), (3, 3000)]


def test_the_device_is_waited_for_before_and_after():
    clock = Clock()
    queue = [5.0, 7.0]  # work that is only done when waited for

    def synchronize():
        if queue:
            clock.now += queue.pop(0)

    assert next(Stopwatch(clock, synchronize).timed(iter("a"))) == ("a", 7000)


def test_closing_closes_the_producer():
    closed = []

    def work():
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    timed = Stopwatch().timed(work())
    next(timed)
    timed.close()
    assert closed == [True]


def test_run():
    clock = Clock()

    def work():
        clock.now += 0.25

    assert Stopwatch(clock).run(work) == 250
