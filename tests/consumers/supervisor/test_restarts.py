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
