"""The command's own words: what it refuses and what it warns of."""

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from mq_django.core.queue_configs import QueueConfig
from mq_django.errors import UnknownGroup
from mq_django.management.commands.runconsumer import Command
from mq_django.registry import Handler, _handlers
from mq_django.transport.private_server import PrivateServer
from tests.waiting import wait_until


def test_a_handler_in_any_module_of_an_app_runs_and_with_json_every_line_is_an_object(trees, publish, history):
    queues = {"default": {}, "others": {"EXTERNAL": True}}
    tree = trees("--skip-checks", "--log-format", "json", QUEUES=queues)
    publish(name="elsewhere")
    history.wait_for("effect")
    assert tree.stop() == 0
    messages = [json.loads(line)["message"] for line in tree.logged().splitlines()]
    assert "Handling default. Housekeeping only for others. Stop with Ctrl-C." in messages


@pytest.mark.single_server(why="it needs a server that keeps nothing, and those of a test's cluster append to files")
def test_what_the_checks_find_is_shown_once(trees, settings):
    with PrivateServer() as other:
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": other.url}
        settings.CACHES = {**settings.CACHES, "shared": cache}
        tree = trees(CONNECTION=other.url)
        wait_until(lambda: "handles default" in tree.logged())
        assert tree.stop() == 0
    assert "all messages are lost when it restarts" in tree.logged()
    assert tree.logged().count("The queues share a Redis database with the cache 'shared'") == 1


def test_with_json_an_error_of_the_command_is_an_object(trees):
    tree = trees("nowhere", "--log-format", "json")
    assert tree.wait(20) == 1
    last = json.loads(tree.logged().splitlines()[-1])
    assert (last["level"], last["message"][:18]) == ("error", "No queue 'nowhere'")


def test_more_queues_than_it_handles_are_refused(mq_settings):
    mq_settings(QUEUES={f"q{number}": {} for number in range(257)})
    with pytest.raises(CommandError, match=r"up to 256 queues and groups, not 257.*manage.py runconsumer QUEUE QUEUE"):
        call_command("runconsumer")


@pytest.mark.slow
def test_as_many_queues_as_it_handles_are_handled(trees, publish, history):
    tree = trees(QUEUES={"default": {}, **{f"q{number}": {} for number in range(255)}})
    publish()
    history.wait_for("effect", timeout=30)
    assert tree.stop() == 0
    assert "Traceback" not in tree.logged()


def test_what_holds_unless_it_is_set():
    options = Command().create_parser("manage.py", "runconsumer").parse_args([])
    assert (options.grace, options.max_messages, options.max_memory) == (30.0, 0, 0)
    assert QueueConfig(name="x", namespace="mq").visibility_timeout == timedelta(seconds=5)


def test_a_group_whose_handlers_name_it_as_a_queue_is_handled(mq_settings, monkeypatch):
    mq_settings(TOPICS={"orders": {}})
    command = Command()
    with pytest.raises(UnknownGroup, match="has no subscriber with the group 'typo'"):
        command._queues(["orders:typo"], housekeeping=False)
    assert [config.external for config in command._queues(["orders:typo"], housekeeping=True)] == [True]
    monkeypatch.setitem(_handlers, ("orders:audit", "paid"), Handler(name="paid", queue="orders:audit", call=print))
    assert [config.name for config in command._queues(["orders:audit"], housekeeping=False)] == ["orders:audit"]
