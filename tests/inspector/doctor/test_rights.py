"""Rights are tried, without effects."""

import pytest
import redis

from mq_django import registry
from mq_django.core.queue_configs import QueueConfig
from mq_django.inspector.doctor.report import examine_project
from mq_django.inspector.doctor.server_checks import _name, commands_of
from tests.inspector.doctor.conftest import levels
from tests.users import granted_to, rules_of, user


@pytest.fixture
def as_user(redis_client, redis_url, namespace, mq_settings, found):
    """Return what is found about the rights of a user with these rules, besides those of the documentation."""

    def look(*rules):
        keys = [f"~{namespace}:*", f"&{namespace}:*"]
        with user(redis_client, redis_url, [*rules_of("stream", namespace), *keys, *rules]) as url:
            mq_settings(CONNECTION=url)
            return [finding for finding in found("D1") if finding.code in ("D115", "D199")]

    return look


def rights(findings):
    return [finding for finding in findings if finding.code == "D115"]


def test_the_rights_of_the_documentation_suffice(as_user):
    assert rights(as_user()) == []


def test_each_command_of_a_consumer_is_tried():
    """Those of the documentation suffice and are needed: see tests/consumers/test_redis_user.py."""
    tried = {_name(command).lower().replace(" ", "|") for command in commands_of(QueueConfig(name="k"))}
    assert tried == granted_to("consumer") | {"eval", "evalsha"}


@pytest.mark.single_server(why="each master has its own findings")
def test_rights_that_are_missing_are_named_with_the_command_that_grants_them(as_user):
    (finding,) = rights(as_user("-xack", "-evalsha", "-xgroup"))
    assert finding.level == "error"
    assert finding.seen == "The Redis user may not run EVALSHA, XACK, XGROUP CREATE, XGROUP DELCONSUMER, XGROUP SETID."
    assert finding.advice == "ACL SETUSER NAME +evalsha +xack +xgroup|create +xgroup|delconsumer +xgroup|setid"


@pytest.mark.single_server(why="each master has its own findings")
def test_a_channel_that_is_missing_is_found(as_user):
    (finding,) = rights(as_user("resetchannels"))
    assert finding.seen == "The Redis user may not use the channels of default, emails."
    assert "channels with &" in finding.advice


@pytest.mark.single_server(why="each master has its own findings")
def test_what_is_missing_is_told_apart(redis_client, redis_url, namespace, mq_settings, found):
    with user(redis_client, redis_url, [*rules_of("stream", namespace), "-zadd"]) as url:
        mq_settings(CONNECTION=url)
        commands, keys = rights(found("D1"))
    assert commands.seen == "The Redis user may not run ZADD."
    assert keys.seen == "The Redis user may not use the keys of default and the channels of default."


def test_a_queue_whose_keys_are_missing_is_named(redis_client, redis_url, namespace, mq_settings, found):
    rules = rules_of("stream", namespace)
    own = [rule.replace("{emails}", "{default}") for rule in rules]
    with user(redis_client, redis_url, own) as url:
        mq_settings(CONNECTION=url)
        (finding,) = rights(found("D1"))
    assert finding.seen == "The Redis user may not use the keys of emails and the channels of emails."


def test_the_rights_of_groups_are_tried(redis_client, redis_url, namespace, mq_settings, found, monkeypatch):
    monkeypatch.setattr(registry, "_starts", {"orders:billing": "0"})
    with user(redis_client, redis_url, rules_of("stream", namespace)) as url:
        mq_settings(CONNECTION=url, QUEUES={"emails": {}}, TOPICS={"orders": {}})
        (finding,) = rights(found("D1"))
    assert finding.seen == "The Redis user may not use the keys of orders:billing and the channels of orders:billing."


def test_without_transactions_nothing_is_tried(as_user, redis_client, namespace):
    notes = as_user("-multi")
    assert any("Could not look at rights: MULTI is refused. Add +multi to the rights" in each.seen for each in notes)
    assert rights(notes) == []


def test_who_asks_for_rights_alone_hears_that_they_were_not_looked_at(redis_client, redis_url, namespace, mq_settings):
    with user(redis_client, redis_url, [*rules_of("stream", namespace), "-multi"]) as url:
        mq_settings(CONNECTION=url)
        (note,) = examine_project(codes={"D115"}).findings
    assert note.seen.startswith("Could not look at rights")


def test_trying_writes_nothing(as_user, redis_client, namespace, subtests):
    for rules in [(), ("-xack",), ("-multi",)]:
        with subtests.test(rules=rules):
            before = writes(redis_client)
            as_user(*rules)
            assert list(redis_client.scan_iter(f"{namespace}:*")) == []
            assert writes(redis_client) == before


def writes(client: redis.Redis) -> dict[str, int]:
    """Return how often Redis ran each command that writes. Calls that it refused do not count."""
    found = client.info("commandstats")
    names = ("xadd", "hset", "zadd", "set", "del", "xack", "append")
    return {name: found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names}


def test_a_server_that_takes_no_writes_is_tried_as_well(server_with, found):
    server = server_with(min_replicas_to_write="1")
    assert found("D1") == []
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-xdel")
    assert levels(found("D115")) == [("D115", "error")]
