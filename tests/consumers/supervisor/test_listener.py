"""What was told while nobody listened is looked for when somebody does again."""

import queue

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.consumers.supervisor.services import SUBSCRIBED, Listener
from mq_django.core import clock
from mq_django.inspector import jobs
from mq_django.stores.background_jobs import BackgroundJobs, JobOrder
from mq_django.transport.connections import open_session
from mq_django.transport.scripts import in_full
from mq_django.transport.sessions import Transport
from tests.seeding import publish
from tests.waiting import wait_until


@pytest.fixture
def heard():
    return queue.Queue()


@pytest.fixture
def listener(heard, mq_settings):
    mq_settings(QUEUES={"a": {}, "b": {}})
    service = Listener(open_session("consume"), {"a:wake": 0, "b:wake": 1}, lambda *found: heard.put(found))
    service.start()
    yield service
    service.stop()
    assert service.join(60)


def test_a_subscription_that_begins_is_heard_of_every_channel(listener, heard):
    assert [heard.get(timeout=60), heard.get(timeout=60)] == [(0, SUBSCRIBED), (1, SUBSCRIBED)]
    assert listener.is_subscribed


def test_a_subscription_that_was_cut_is_heard_again_when_it_stands(listener, heard, redis_client):
    for _ in range(2):
        heard.get(timeout=60)
    redis_client.client_kill_filter(_type="pubsub")
    assert {heard.get(timeout=60) for _ in range(2)} == {(0, SUBSCRIBED), (1, SUBSCRIBED)}
    redis_client.publish("b:wake", "job")
    assert heard.get(timeout=60) == (1, "job")


class Cut(Transport):
    """Cuts every subscription before it sends, so that nobody hears what the commands tell."""

    def __init__(self, client):
        self._client = client

    def pipeline(self, commands):
        with self._client.pipeline(transaction=True) as pipe:
            pipe.client_kill_filter(_type="pubsub")
            for command in commands:
                pipe.execute_command(*in_full(command))
            return pipe.execute()[1:]


@pytest.mark.single_server(why="cuts the connections of one server")
def test_a_job_that_nobody_heard_of_is_begun_when_the_subscription_stands_again(trees, redis_client):
    publish("default", "later", 1, delay=3600)
    trees()
    wait_until(lambda: inspector.queue("default").alive)
    jobs.begin("default", "delete", "delayed", who="ann")
    # From now on the supervisor looks for a job once a minute, or when it hears of one.
    wait_until(lambda: jobs.get_job("default", "delayed").state == "finished")
    publish("default", "later", 2, delay=3600)

    unheard = BackgroundJobs(get_config().queue("default"), Cut(redis_client))
    order = JobOrder(messages="delayed", what="delete", who="ann", until=f"{clock.now_ms() + 60_000}-0")
    assert unheard.begin(order, total=1)

    wait_until(lambda: jobs.get_job("default", "delayed").state == "finished")
    assert inspector.queue("default").delayed == 0
