"""Faults in a project."""

import pytest
from shop.handlers import emails

from mq_django.errors import ConnectionLost

ANN = {"email": "ann@shop.example"}


def test_a_crash_after_the_time_was_moved(mq, mailoutbox):
    emails.publish("welcome", ANN, delay=3600)
    mq.advance(hours=2)
    mq.crash_at("after_effect")
    mq.run()
    assert len(mailoutbox) == 2


def test_without_redis_nothing_is_published_or_handled(mq, mailoutbox):
    emails.publish("welcome", ANN)
    with mq.redis_down():
        with pytest.raises(ConnectionLost):
            emails.publish("welcome", ANN)
        with pytest.raises(ConnectionLost):
            mq.run()
    assert len(mq.published("emails")) == 1
    assert len(mq.run()) == len(mailoutbox) == 1


def test_redis_is_there_again_after_an_error(mq):
    with pytest.raises(KeyError), mq.redis_down(), mq.redis_down():
        raise KeyError
    assert emails.publish("welcome", ANN)
