"""A consumer runs what it took in the order of the priorities."""

import random

from tests.consumers.rig import Rig
from tests.waiting import wait_until


def test_one_thread_runs_all_in_the_order_of_priorities_and_of_arrival(mq_settings, publish):
    ran = []
    rig = Rig(threads=1, act=lambda message: ran.append((message.priority, message.data["do"][0])))
    rig.store.create_groups()
    levels = random.Random(1).choices([-100, -3, 0, 0, 0, 3, 100], k=60)
    for number, level in enumerate(levels):
        publish(number, priority=level)
    rig.settler.seconds = 0.0001  # so fast that all of it is taken before the first has run
    while rig.store.depths().ready:
        rig.fetcher.run_once()
    rig.start()
    try:
        wait_until(lambda: len(ran) == len(levels))
    finally:
        rig.close()
    assert ran == sorted(((level, number) for number, level in enumerate(levels)), key=lambda it: (-it[0], it[1]))
