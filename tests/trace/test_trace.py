"""The script that traces modules runs, and counts what it says."""

from pathlib import Path

import mq_django
from mq_django import queues
from tests.compat.versions import ROOT
from tests.trace.__main__ import report, trace
from tests.trace.paths import ACTIONS, handled, most_common
from tests.trace.recorder import BEGIN, CALL, END, REPLY, RETURN, SENT, Event

FETCHER, LANE, SETTLER, OTHER = range(4)
REPLIED = "[b'1795000000000-0', [b'id', b'm1']]"


def test_every_action_is_traced(tmp_path):
    found = trace(ROOT, tmp_path / "events", messages=2)
    assert list(found) == list(ACTIONS)
    package = Path(mq_django.__file__).parent
    for modules in found.values():
        assert len(modules) > 3
        assert [module for module in modules if not (package / f"{module}.py").exists()] == []
    assert next(iter(found["publish"])) == type(queues).__getitem__.__module__.removeprefix("mq_django.").replace(
        ".", "/"
    )
    assert "management/commands/mq" in found["redrive"]
    # A message comes with a reply, and its outcome goes with a command: by whatever module talks to Redis.
    assert next(iter(found["fetch to ack"])) in found["publish"]
    assert found["retry"] != found["bury"]
    lines = list(report({"now": found}))
    assert lines[0].split() == ["modules", "now"]
    assert lines[1].split() == ["publish", str(len(found["publish"]))]


def test_only_what_a_message_goes_through_counts():
    loop = ("service:loop", "fetcher:turn", "sessions:receive")
    events = [
        Event(OTHER, CALL, "before:f"),
        Event(FETCHER, REPLY, REPLIED, loop[::-1]),
        Event(FETCHER, RETURN, "sessions:receive"),
        Event(OTHER, CALL, "timer:tick"),
        Event(FETCHER, CALL, "dispatcher:put"),
        Event(FETCHER, RETURN, "dispatcher:put"),
        Event(FETCHER, RETURN, "fetcher:turn"),
        Event(FETCHER, CALL, "room:next_turn"),
        Event(LANE, CALL, "executor:run"),
        Event(LANE, BEGIN, "m1"),
        Event(LANE, CALL, "handler:calls"),
        Event(LANE, END, "m1", ("executor:run", "pools:loop")),
        Event(LANE, CALL, "outcomes:judge"),
        Event(FETCHER, CALL, "room:another_turn"),
        Event(SETTLER, SENT, "('PING',)"),
        Event(SETTLER, CALL, "settler:settle"),
        Event(SETTLER, SENT, "('EVALSHA', b'1795000000000-0')"),
        Event(SETTLER, CALL, "settler:next"),
    ]
    arriving, settling = handled(events, "m1")
    assert arriving == [*loop[::-1], "dispatcher:put", "executor:run"]
    assert settling == ["executor:run", "pools:loop", "outcomes:judge", "settler:settle"]


def test_the_path_of_most_messages_is_shown():
    rare, usual = ["a:f", "b:f"], ["a:f", "c:g", "a:h", "c:g"]
    assert most_common([rare, usual, usual]) == {"a": ["f", "h"], "c": ["g"]}
