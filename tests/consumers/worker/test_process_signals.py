"""The signals of the start and the stop of a consumer process, and why it leaves."""

from unittest import mock

import pytest

from mq_django.conf import get_config
from mq_django.consumers.worker import main
from mq_django.signals import consumer_started, consumer_stopping
from tests.hearing import hears
from tests.signal_docs import arguments_of


@pytest.fixture
def child(mq_settings, monkeypatch):
    """A consumer process whose steps are only noted."""
    mq_settings(QUEUES={"default": {}, "parts": {"PARTITIONS": 2}})
    monkeypatch.setattr(main, "gc", mock.Mock())
    made = mock.MagicMock()
    made._queues = [part for name in ("default", "parts") for part in get_config().queue(name).each_part]
    made._spec.queues, made._consumer.id, made._orphaned = [queue.name for queue in made._queues], "web-1", False
    return made


def test_receivers_are_called_before_anything_is_fetched_and_before_handlers_are_waited_for(child, caplog):
    def note(sender, signal, **given):
        which = "started" if signal is consumer_started else "stopping"
        assert {"sender", "signal", *given} == arguments_of(signal)
        getattr(child, which)(**given)

    # What receivers raise ends nothing.
    with hears(consumer_started, consumer_stopping, raises=SystemExit(), to=note):
        assert main.ChildProcess.run(child) == 0
    about = {"consumer": "web-1", "queues": ["default", "parts"]}
    names = ("started", "_consumer.start", "_wait", "stopping", "_stop")
    assert [each for each in child.mock_calls if each[0] in names] == [
        mock.call.started(**about),
        mock.call._consumer.start(),
        mock.call._wait(),
        mock.call.stopping(**about),
        mock.call._stop(),
    ]
    assert caplog.text.count("A receiver of a signal failed") == 2


def test_a_process_leaves_when_it_has_handled_so_many_messages_uses_so_much_memory_or_cannot_go_on(child, subtests):
    consumer = {"stuck": [], "is_blocked": False, "settled": 5, "idle_seconds": 0.0}
    limits = {"max_messages": 0, "max_memory": 0, "drain": False}
    for options, said in [
        ({}, ""),
        ({"max_messages": 6, "max_memory": 2**20}, ""),
        ({"max_messages": 5}, "it has handled 5 messages"),
        ({"max_memory": 1}, "it uses "),
        ({"stuck": ["fetcher is stuck for 31 s"]}, "it is stuck"),
        ({"is_blocked": True}, "its event loop is blocked"),
        ({"idle_seconds": 3600.0}, "no messages are left to run alone"),
    ]:
        with subtests.test(options=options):
            for name, value in limits.items():
                setattr(child._spec, name, options.get(name, value))
            for name, value in consumer.items():
                getattr(child._consumer, name).return_value = options.get(name, value)
            reason = main.ChildProcess._reason_to_leave(child)
            assert reason.startswith(said) if said else not reason
