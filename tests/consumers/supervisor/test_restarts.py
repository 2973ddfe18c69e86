"""When a process is started in place of one that has ended."""

from mq_django.consumers.supervisor.workers import FIRST_PAUSE, MAX_PAUSE, Restarts


def test_the_first_end_costs_no_pause_and_each_further_one_twice_the_last():
    restarts, now, deaths, pauses = Restarts(), 100.0, 0, []
    for _ in range(12):
        pauses.append(restarts.ended(now, deaths + 1))
        now += pauses[-1]
        assert restarts.waiting(now) == 0
        deaths = restarts.take(now)
    assert deaths == 12
    assert pauses[:4] == [0.0, FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]
    assert pauses[-3:] == [MAX_PAUSE] * 3


def test_each_place_waits_for_itself():
    restarts = Restarts()
    restarts.ended(100.0, 9)
    restarts.ended(100.0, 1)
    assert restarts.waiting(100.0) == 1
    assert restarts.take(100.0) == 1
    # A place where nothing ended is free at once, and does not inherit another's pause.
    assert restarts.take(100.0) == 0
    assert restarts.waiting(100.0 + MAX_PAUSE) == 0
    assert restarts.take(100.0 + MAX_PAUSE) == 9


def test_who_was_refused_waits_at_least_so_long():
    restarts = Restarts()
    assert restarts.ended(100.0, 1, at_least=0.5) == 0.5
    assert (restarts.waiting(100.4), restarts.waiting(100.5)) == (1, 0)
