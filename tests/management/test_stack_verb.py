"""`manage.py mq consumers --stacks`."""

import re

import pytest
from django.core.management import CommandError

from mq_django.conf import get_config
from mq_django.core.jsontext import LAST_MS
from mq_django.core.stacks import Frame, Stack, stacks_text
from mq_django.inspector import processes
from mq_django.management import process_verbs
from mq_django.stores import open_members
from mq_django.stores.control import StackRequests
from mq_django.transport.connections import open_transport
from tests.management.test_mq import mq, mq_json
from tests.seeding import CONSUMER, beat, publish, take
from tests.stores.test_stack_requests import FIELDS

pytestmark = pytest.mark.usefixtures("mq_settings")

EXPORT = Stack(
    "thread",
    "emails",
    "export-7",
    "export",
    12_340,
    [Frame("shop/tasks.py", 7, "export", "for row in rows:"), Frame("<string>", 0, "<module>")],
)


@pytest.fixture
def answered():
    """Let a consumer have answered all requests, and return a function that changes its answer."""
    beat("emails")

    def answer(*stacks):
        requests = StackRequests(get_config().queue("emails"), open_transport("produce"))
        requests.answer("s1-c0", LAST_MS, stacks_text(stacks))

    answer(EXPORT)
    return answer


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(process_verbs, "WAIT", 0.1)


def test_each_stack_has_the_form_of_a_traceback(answered):
    assert mq("consumers", "--stacks", "s1-c0").splitlines() == [
        "export  export-7  of queue emails, in a thread for 12.3 s",
        '  File "shop/tasks.py", line 7, in export',
        "    for row in rows:",
        '  File "<string>", line 0, in <module>',
    ]


def test_it_says_what_is_left_out(answered):
    others = [Stack(kind, "", "", "", 0, EXPORT.frames) for kind in ("task", "sync")]
    answered(EXPORT._replace(left_out=3, others=2), EXPORT._replace(frames=[]), *others)
    shown = mq("consumers", "--stacks", "s1-c0")
    assert "  ... 3 outer frames are left out\n" in shown
    assert "  ... and 2 more tasks that it awaits at the same time\n" in shown
    assert "  It has no frames: the handler is about to start, or has just ended.\n" in shown
    assert "\nA task on the event loop that no handler awaits\n" in shown
    assert "\nWhat a coroutine runs in another thread, with sync_to_async\n" in shown


def test_programs_get_json(answered):
    found = mq_json("consumers", "--stacks", "s1-c0")
    assert (found["consumer"], found["more"]) == ("s1-c0", 0)
    (one,) = found["stacks"]
    assert (one["kind"], one["id"], one["ms"]) == ("thread", "export-7", 12_340)
    assert one["frames"][0] == {"file": "shop/tasks.py", "line": 7, "function": "export", "code": "for row in rows:"}


def test_what_another_program_has_written_does_not_reach_the_terminal(answered):
    answered(EXPORT._replace(name="\x1b[2J", frames=[Frame("a\x1b", 1, "\u202e", 'token = "abc123"')]))
    shown = mq("consumers", "--stacks", "s1-c0")
    assert not re.search(r"[\x1b\u202e]", shown)
    assert "token = [redacted]" in shown


def test_without_an_answer_it_names_what_the_heartbeat_knows(hurried, capsys):
    message_id = publish("emails", "welcome")
    (item,) = take("emails", 1)
    tell([[item.stream, item.entry.decode(), 720_000]])
    with pytest.raises(CommandError, match=r"did not answer within 0.1 s. A handler may hold the GIL"):
        mq("consumers", "--stacks", CONSUMER)
    assert process_verbs._running(processes.find_process(CONSUMER)[1]) == [
        {"queue": "emails", "id": message_id, "name": "welcome", "seconds": pytest.approx(720.0, abs=60)}
    ]


def tell(running):
    members = open_members(get_config().queue("emails"), open_transport("produce"))
    members.beat("s1", {"host": "web1"}, {CONSUMER: {"threads": 8, "running": running}})


@pytest.mark.parametrize("who", ["nobody", "s1", ""])
def test_who_is_no_consumer_is_an_error(answered, who):
    with pytest.raises(CommandError, match=f"There is no consumer {who}"):
        mq("consumers", "--stacks", who)


def test_nothing_is_left_behind_but_what_ends_by_itself(answered, redis_client):
    keys = get_config().queue("emails").keys
    mq("consumers", "--stacks", "s1-c0")
    assert 0 < redis_client.pttl(keys.stacks) <= 60_000
    assert redis_client.hget(keys.consumers, FIELDS[1]) == b"1"
