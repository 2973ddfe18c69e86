"""What was done to queues is recorded: each operation once, whoever calls it, and none fails because of it."""

import json
from datetime import timedelta
from importlib import import_module
from inspect import getmembers, isfunction
from io import StringIO
from pkgutil import walk_packages

import pytest
from django.core.management import call_command

from mq_django import every, inspect, inspector, queues, registry, schedules, topics
from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.filters import Filter
from mq_django.core.messages import Bury
from mq_django.core.running_handler import running
from mq_django.core.schedules import Scheduled
from mq_django.errors import ConnectionLost, InvalidFilter
from mq_django.inspector import action_log, actions, dead_letters, holds, jobs, key_lines, outbox_views, plans
from mq_django.inspector import topics as inspected
from mq_django.management import capacity_verbs, message_verbs, workflow_verbs
from mq_django.outbox import stored_rows
from mq_django.outbox.claims import RETAINED
from mq_django.producers import workflow_run
from mq_django.producers.schedules import ScheduleCollection
from mq_django.producers.topics import Group
from mq_django.stores import activity
from mq_django.stores.base import Settlement
from tests.outbox_rows import outbox_row, set_aside_row
from tests.seeding import CONSUMER, beat, bury, dead_entry, end_steps, opened, publish, start_run, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]


LINES = {"ORDERED": True, "ON_DEAD_LETTER": "hold", "RATE_LIMIT": "1000/s"}


@pytest.fixture(autouse=True)
def _queues(mq_settings, monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})
    mq_settings(
        QUEUES={
            "emails": {},
            "default": {},
            "lines": LINES,
        },
        TOPICS={"orders": {}},
    )


def with_a_limit():
    inspect.set_limits("lines", rate="2/s")


def waiting():
    return publish("emails", "welcome", delay=60)


def ended_run():
    run = start_run({1: [], 2: []}, policy="continue")
    end_steps(run, Bury(error="ValueError: no", reason="attempts"), 1)
    return run


def with_head():
    """Return the dead letter that others of its key wait for."""
    lines = opened("lines")
    publish("lines", "welcome", key="a")
    bury_all = [
        Settlement(each, Bury(error="ValueError: no", reason="attempts")) for each in lines.take(CONSUMER, count=1)
    ]
    assert lines.settle(CONSUMER, bury_all) == []
    return inspector.key_line("lines", "a")


def group():
    topics["orders"].group("billing").subscribe()
    return topics["orders"].group("billing")


def paused():
    actions.pause("emails")


def held():
    inspect.hold("emails", name="welcome", who="ann")


def muted():
    inspect.mute("emails", "late", seconds=60)


def begun():
    publish("emails", "welcome")
    inspect.start_job("emails", "delete", "ready", who="ann")


def kept_row():
    return outbox_row(batch=RETAINED)


def with_message():
    found = group()
    topics["orders"].publish("order.paid", {}, on_commit=False)
    return found


def scheduled(name="digest"):
    schedules.create(name, queue="emails", every=timedelta(hours=1), message="digest")
    return name


def in_code():
    registry.schedule(Scheduled(name="nightly", queue="emails", message="m", data=None, when=every(hours=1)))
    return "nightly"


def overridden():
    schedules.override(in_code(), queue="emails", every=60)
    return "nightly"


def with_skip():
    schedules.skip(scheduled(), queue="emails")


def with_pause():
    schedules.pause(scheduled(), queue="emails")


def mq(*words):
    call_command("mq", *words, stdout=StringIO())


#: Each operation: what it needs, how it is called, and the verb of its entry.
OPERATIONS = {
    actions.cancel: (waiting, lambda one: inspect.cancel("emails", [one]), "cancel"),
    actions.pause: (None, lambda _: inspect.pause("emails"), "pause"),
    actions.resume: (paused, lambda _: inspect.resume("emails"), "resume"),
    actions.pause_all: (None, lambda _: actions.pause_all(name="deploy"), "pause"),
    actions.resume_all: (paused, lambda _: actions.resume_all(), "resume"),
    actions.resume_these: (paused, lambda _: actions.resume_these(["emails"]), "resume"),
    holds.hold: (None, lambda _: inspect.hold("emails", name="welcome"), "hold"),
    holds.open_breaker: (None, lambda _: inspect.open_breaker("emails"), "open breaker"),
    holds.set_limits: (None, lambda _: inspect.set_limits("lines", rate="2/s"), "change limits"),
    holds.reset_limits: (with_a_limit, lambda _: inspect.reset_limits("lines"), "change limits"),
    holds.end_hold: (held, lambda _: inspect.end_hold("emails", name="welcome"), "end hold"),
    dead_letters.redrive: (lambda: bury("emails"), lambda _: dead_letters.redrive("emails", [dead()]), "redrive"),
    dead_letters.redrive_messages: (lambda: bury("emails"), lambda one: inspect.redrive("emails", [one]), "redrive"),
    dead_letters.delete: (lambda: bury("emails"), lambda _: dead_letters.delete("emails", [dead()]), "delete"),
    dead_letters.delete_messages: (lambda: bury("emails"), lambda one: inspect.delete("emails", [one]), "delete"),
    dead_letters.resubmit: (lambda: bury("emails"), lambda _: dead_letters.resubmit("emails", dead(), "1"), "resubmit"),
    dead_letters.resubmit_message: (
        lambda: bury("emails"),
        lambda one: inspect.resubmit("emails", one, "1"),
        "resubmit",
    ),
    dead_letters.move: (lambda: bury("emails"), lambda _: dead_letters.move("emails", "default", [dead()]), "move"),
    jobs.move: (waiting, lambda one: jobs.move("emails", "delayed", "default", [one]), "move"),
    jobs.move_messages: (waiting, lambda one: jobs.move_messages("emails", "default", [one]), "move"),
    dead_letters.move_messages: (lambda: bury("emails"), lambda one: inspect.move("emails", "default", [one]), "move"),
    jobs.begin: (lambda: bury("emails"), lambda _: inspect.start_job("emails", "redrive", who="ann"), "redrive"),
    jobs.cancel: (begun, lambda _: inspect.cancel_job("emails", "ready"), "cancel job"),
    inspector.problem_list.mute: (None, lambda _: inspect.mute("emails", "late", seconds=60), "mute"),
    inspector.problem_list.unmute: (muted, lambda _: inspect.unmute("emails", "late"), "unmute"),
    inspector.processes.ask: (lambda: beat("emails"), lambda _: inspect.ask("s1", "quiet"), "quiet"),
    key_lines.skip: (
        with_head,
        lambda line: key_lines.skip("lines", line.hash, line.heads[0].token),
        "skip message",
    ),
    key_lines.redrive_head: (with_head, lambda line: key_lines.redrive_head("lines", line.heads[0]), "redrive"),
    inspected.seek: (group, lambda _: inspected.seek("orders", "billing", "end"), "seek"),
    inspected.unsubscribe: (group, lambda _: inspected.unsubscribe("orders", "billing"), "unsubscribe"),
    Group.seek: (group, lambda one: one.seek("beginning"), "seek"),
    Group.unsubscribe: (group, lambda one: one.unsubscribe(), "unsubscribe"),
    ScheduleCollection.create: (None, lambda _: scheduled(), "create schedule"),
    ScheduleCollection.update: (
        scheduled,
        lambda one: schedules.update(one, queue="emails", every=60),
        "change schedule",
    ),
    ScheduleCollection.pause: (scheduled, lambda one: schedules.pause(one, queue="emails"), "pause schedule"),
    ScheduleCollection.resume: (with_pause, lambda _: schedules.resume("digest", queue="emails"), "resume schedule"),
    ScheduleCollection.skip: (scheduled, lambda one: schedules.skip(one, queue="emails"), "skip tick"),
    ScheduleCollection.unskip: (with_skip, lambda _: schedules.unskip("digest", queue="emails"), "unskip tick"),
    ScheduleCollection.fire: (scheduled, lambda one: schedules.fire(one, queue="emails"), "fire schedule"),
    ScheduleCollection.delete: (scheduled, lambda one: schedules.delete(one, queue="emails"), "delete schedule"),
    ScheduleCollection.override: (
        in_code,
        lambda one: schedules.override(one, queue="emails", every=60),
        "override schedule",
    ),
    ScheduleCollection.restore: (overridden, lambda one: schedules.restore(one, queue="emails"), "restore schedule"),
    plans.forget: (scheduled, lambda one: plans.forget(plans.find("emails", one)), "forget schedule"),
    workflow_run.cancel: (lambda: start_run({1: []}), workflow_run.cancel, "cancel run"),
    workflow_run.retry: (ended_run, workflow_run.retry, "retry run"),
    workflow_run.skip: (ended_run, lambda run: workflow_run.skip(run, 1), "skip step"),
    outbox_views.retry: (set_aside_row, lambda row: outbox_views.retry("default", [row.pk]), "retry outbox"),
    outbox_views.discard: (set_aside_row, lambda _: outbox_views.discard("default"), "discard outbox"),
    outbox_views.renew: (None, lambda _: outbox_views.renew("default"), "renew outbox"),
    stored_rows.forget: (kept_row, lambda _: stored_rows.forget("default", "emails"), "forget outbox"),
    stored_rows.republish: (
        kept_row,
        lambda _: stored_rows.republish("default", get_config().queue("emails")),
        "republish outbox",
    ),
    Group.replay: (with_message, lambda one: one.replay(lambda _: None), "replay"),
    message_verbs._publish: (
        None,
        lambda _: mq("publish", "emails", "a"),
        "publish",
    ),
}

#: They need a queue that changes its partitions, and a run that was damaged.
ELSEWHERE = {capacity_verbs._run, workflow_verbs._repair}

#: The first words of what only reads.
READS = {"Return", "Yield", "Count", "Tell", "Find", "Check", "Refuse", "Search", "Look"}
#: They change nothing that lasts, or only what one user sees first.
ASK = {"ask_for_stacks", "ping", "star", "times_in"}
#: A part of two operations that are recorded.
PART = {"move_letters"}


def dead():
    return dead_entry("emails")


def recorded():
    return inspect.actions().rows


@pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda operation: f"{operation.__module__}.{operation.__qualname__}"
)
def test_each_operation_is_recorded_once(operation, redis_client, namespace):
    prepare, call, verb = OPERATIONS[operation]
    prepared = prepare() if prepare else None
    redis_client.delete(f"{namespace}:activity")

    call(prepared)

    (entry,) = recorded()
    assert (entry.verb, entry.error) == (verb, "")
    assert entry.done >= 1
    assert entry.queues or entry.about


def functions_of(package):
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        if ".doctor" in found.name:
            continue
        module = import_module(found.name)
        for name, function in getmembers(module, isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield function


def test_each_operation_of_the_inspector_is_in_the_table():
    found = [function for function in functions_of(inspector) if function.__doc__]
    changes = {each for each in found if each.__doc__.split()[0] not in READS and each.__name__ not in ASK | PART}
    missing = {each.__qualname__ for each in changes if not hasattr(each, "records")}

    assert not missing
    assert {each for each in found if hasattr(each, "records")} <= {*OPERATIONS, *ELSEWHERE}


def test_each_verb_is_one_of_an_operation():
    verbs = {verb for _, _, verb in OPERATIONS.values()} | {each.records for each in ELSEWHERE}
    assert {*activity.VERBS} == verbs | {"purge", "stop", "finish job"}


def test_what_changes_nothing_is_not_recorded():
    actions.resume("emails")
    inspect.redrive("emails", ["gone"])
    inspect.cancel("emails", ["gone"])
    assert recorded() == []


def test_an_entry_says_who_what_which_and_how_many():
    ids = [bury("emails"), "gone"]
    with activity.acting("ada", "admin"):
        inspect.redrive("emails", ids)
        inspect.pause("emails", who="somebody else", reason="a\u202e deploy")

    pause, redrive = recorded()
    assert (redrive.who, redrive.source, redrive.verb) == ("ada", "admin", "redrive")
    assert (redrive.queues, redrive.about, redrive.done, redrive.result) == (["emails"], ids, 1, "1 missing")
    assert (pause.who, pause.reason) == ("ada", "a<U+202E> deploy")
    assert redrive.id < pause.id


@pytest.fixture
def _outside_of_handlers():
    """Another test may have run a handler in this thread."""
    token = running.set(None)
    yield
    running.reset(token)


@pytest.mark.usefixtures("_outside_of_handlers")
def test_without_anybody_it_is_who_was_named_or_the_process_and_its_handler():
    inspect.pause("emails", who="ada")
    inspect.resume("emails")
    publish("default", "clean")
    (delivery,) = take("default", 1)
    token = running.set(type("Run", (), {"delivery": delivery})())
    try:
        inspect.pause("emails")
    finally:
        running.reset(token)

    handler, process, named = recorded()
    assert (named.who, named.source) == ("ada", "code")
    assert ":" in process.who
    assert handler.who == f"clean, {process.who}"


def test_mq_is_named():
    mq("pause", "emails", "--reason", "deploy")
    (entry,) = recorded()
    assert (entry.source, entry.reason) == ("mq", "deploy")
    assert entry.who.endswith(", mq")


def test_an_operation_does_not_fail_because_it_cannot_be_recorded(redis_client, namespace, caplog):
    redis_client.set(f"{namespace}:activity", "of somebody else")

    assert inspect.pause("emails") is True

    assert inspect.queue("emails").paused
    assert "could not be recorded" in caplog.text


def test_what_was_not_done_is_not_reported_as_unrecorded(monkeypatch, caplog):
    with pytest.raises(InvalidFilter):
        inspect.hold("emails", name="welcome", key="ann")

    def lose(*_):
        raise ConnectionLost("refused")

    monkeypatch.setattr(actions, "_switch_each", lose)
    monkeypatch.setattr("mq_django.stores.activity.record", lose)
    with pytest.raises(ConnectionLost, match="refused"):
        inspect.pause("emails")
    assert caplog.text == ""


@pytest.mark.parametrize("state", ["ready", "delayed"])
def test_moving_messages_of_any_state_is_called_move(state):
    queues["emails"].publish("welcome", {}, delay=60 if state == "delayed" else None, on_commit=False)
    inspect.start_job("emails", "move", state, target="default", who="ann")
    assert recorded()[0].verb == "move"


def test_an_operation_whose_reply_was_lost_is_recorded_as_interrupted(monkeypatch):
    def lose(*_):
        raise ConnectionLost("gone")

    monkeypatch.setattr(actions, "_switch_each", lose)
    with pytest.raises(ConnectionLost):
        inspect.pause("emails")
    (entry,) = recorded()
    assert (entry.verb, entry.error) == ("pause", "ConnectionLost")


def test_the_end_of_a_job_is_recorded_with_its_token_and_counts():
    for _ in range(3):
        bury("emails")
    begun_job = inspect.start_job("emails", "redrive", who="ann", criteria=Filter(name="welcome"))
    while work_here("emails", "w1") < 1:
        pass

    end, begin = recorded()
    assert (begin.verb, begin.job, begin.where) == ("redrive", begun_job.token, {"name": "welcome"})
    assert (end.verb, end.job, end.done) == ("finish job", begun_job.token, 3)
    assert (end.who, end.source) == ("ann", "consumer")
    assert action_log.jobs_of_actions([begin])[begun_job.token].done == 3


def test_only_the_latest_are_kept(monkeypatch, redis_client, namespace):
    monkeypatch.setattr(activity, "MAX_KEPT", 100)
    for _ in range(150):
        inspect.pause("emails")
        inspect.resume("emails")
    assert redis_client.xlen(f"{namespace}:activity") < 250


def test_it_is_filtered_and_read_page_by_page():
    for who in ("ada", "bob", "ada"):
        inspect.pause("emails", who=who)
        inspect.resume("emails")
    inspect.pause("default", who="ada")

    pauses = inspect.actions(verbs=["pause"], who="AD", queue="emails", source="code")
    assert [each.who for each in pauses.rows] == ["ada", "ada"]
    first = inspect.actions(limit=3)
    assert len(first.rows) == 3
    assert len(inspect.actions(limit=50, after=first.after).rows) == 4
    newest = first.rows[0]
    assert inspect.actions(until_ms=newest.ms + 1, since_ms=newest.ms).rows[0] == newest
    assert inspect.actions(since_ms=newest.ms + 1).rows == []
    with pytest.raises(InvalidFilter):
        inspect.actions(after="nonsense")


def test_entries_of_other_programs_are_left_out(redis_client, namespace):
    inspect.pause("emails")
    for fields in ({"x": "y"}, {"verb": b"\xff", "queues": "{", "about": "7", "done": "many", "where": "[]"}):
        redis_client.xadd(f"{namespace}:activity", fields)
    odd, pause = recorded()
    assert (odd.queues, odd.about, odd.done, odd.where) == ([], [], 0, {})
    assert pause.verb == "pause"


def test_secrets_are_not_recorded():
    inspect.start_job("emails", "delete", "ready", who="ann", criteria=Filter(name="token"))
    publish("emails", "x")
    inspect.pause("emails", reason="see redis://u:hunter2@host/0")
    assert "hunter2" not in repr(recorded())


def undo_words():
    rows = recorded()
    can = action_log.undoable(rows, action_log.jobs_of_actions(rows))
    return {each.verb for each in rows if each.id in can}


def test_what_is_still_so_can_be_undone():
    with_skip()
    schedules.pause("digest", queue="emails")
    inspect.pause("emails", who="ada")
    inspect.mute("emails", "late", seconds=3600, who="ada")
    begun()
    assert undo_words() == {"skip tick", "pause schedule", "pause", "mute", "purge"}

    schedules.unskip("digest", queue="emails")
    schedules.resume("digest", queue="emails")
    inspect.resume("emails")
    inspect.unmute("emails", "late")
    inspect.cancel_job("emails", "ready")
    assert undo_words() == set()


def test_a_pause_by_somebody_else_is_not_undone(redis_client, namespace):
    inspect.pause("emails", who="ada")
    inspect.resume("emails")
    inspect.pause("emails", who="bob")
    rows = recorded()
    (undone,) = action_log.undoable(rows, {})
    assert rows[0].id == undone


def test_mq_lists_what_was_done_and_what_became_of_jobs():
    with activity.acting("ada", "admin"):
        inspect.pause("emails", reason="deploy")
        inspect.resume("emails")
        begun()

    out = StringIO()
    call_command("mq", "activity", "--queue", "emails", "--who", "AD", "--since", "1h", "--limit", "2", stdout=out)
    heading, purge, resume = out.getvalue().splitlines()
    assert heading.split() == ["at", "who", "source", "verb", "queues", "about", "result", "reason"]
    assert purge.split()[1:] == ["ada", "admin", "purge", "emails", "-", "0", "of", "1,", "running", "-"]
    assert resume.split()[1:] == ["ada", "admin", "resume", "emails", "-", "1", "-"]

    out = StringIO()
    call_command("mq", "activity", "--what", "pause", "--json", stdout=out)
    (row,) = json.loads(out.getvalue())
    assert (row["who"], row["verb"], row["queues"], row["reason"]) == ("ada", "pause", ["emails"], "deploy")


def test_a_hold_can_be_undone_until_it_ends():
    held()
    inspect.open_breaker("emails", who="ann")
    assert len(action_log.undoable(recorded(), {})) == 2
    inspect.end_hold("emails", name="welcome")
    still = action_log.undoable(recorded(), {})
    assert [entry.verb for entry in recorded() if entry.id in still] == ["open breaker"]
    inspect.end_hold("emails")
    assert action_log.undoable(recorded(), {}) == set()
