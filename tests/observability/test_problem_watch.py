"""Signals of problems: when they are sent, by whom, and how often."""

import logging
from datetime import timedelta

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.errors import ConnectionLost
from mq_django.inspector import QueueProblem, Thresholds, actions
from mq_django.management.commands.runconsumer import watchers
from mq_django.observability import problem_watch
from mq_django.observability.problem_watch import ProblemWatcher
from mq_django.signals import problem_began, problem_ended
from mq_django.stores.control import ProblemNotes
from mq_django.transport.connections import open_transport
from mq_django.transport.private_server import PrivateServer
from tests.commands import script_calls
from tests.consumers.conftest import history, publish, store, trees  # noqa: F401
from tests.hearing import hears
from tests.seeding import beat, publish_many
from tests.signal_docs import arguments_of
from tests.waiting import moment_between, wait_until

pytestmark = pytest.mark.usefixtures("mq_settings")


@pytest.fixture
def heard(db):
    """Return what was sent, as (signal, queue, kind). Watchers close old connections to the database before that."""
    found = []

    def hear(signal, sender, queue, problem, **more):
        assert sender is QueueProblem
        assert {"signal", "sender", "queue", "problem", *more} == arguments_of(signal)
        assert isinstance(more.get("lasted", timedelta()), timedelta)
        found.append(("began" if signal is problem_began else "ended", queue, problem.kind))

    with hears(problem_began, problem_ended, to=hear):
        yield found


@pytest.fixture
def watcher(monkeypatch, db):
    """Return a watcher that may look again at once.

    It closes old connections to the database. An earlier test may have left one open in this thread.
    """
    monkeypatch.setattr(problem_watch, "EVERY", 0)
    return ProblemWatcher()


@pytest.fixture
def look(watcher, redis_client):
    """Look at the queues some times, each at another millisecond of the server's clock."""

    def run(times=1, *, by=watcher):
        for _ in range(times):
            moment_between(redis_client)
            by.run_once()

    return run


@pytest.fixture
def no_quiet_time(monkeypatch):
    """Return a function after whose call a problem has ended when one look does not find it."""
    return lambda: monkeypatch.setattr(problem_watch, "QUIET_MS", 0)


def test_a_problem_begins_when_two_looks_have_found_it(look, heard):
    beat("emails")
    look(2)
    actions.pause("emails")

    look()
    assert heard == []
    look()
    assert heard == [("began", "emails", "paused")]
    look(3)
    assert len(heard) == 1


def test_a_queue_with_partitions_has_each_problem_once(look, heard, mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": 4}})
    look(2)
    heard.clear()
    actions.pause("default")
    look(3)
    assert heard == [("began", "default", "paused")]


def test_the_thresholds_of_the_settings_decide_what_is_a_problem(look, heard, mq_settings):
    mq_settings(THRESHOLDS={"MAX_READY": 2})
    beat("emails")
    publish_many("emails", [("welcome", n) for n in range(2)])
    look(2)
    assert heard == []
    publish_many("emails", [("welcome", 3)])
    look(2)
    assert heard == [("began", "emails", "ready")]


def test_it_ends_when_none_has_found_it_for_a_while(look, heard, no_quiet_time):
    actions.pause("emails")
    look(2)
    actions.resume("emails")

    look(2)
    assert heard == [("began", "emails", "paused")]
    no_quiet_time()
    look(2)
    assert heard == [("began", "emails", "paused"), ("ended", "emails", "paused")]


def test_one_that_comes_and_goes_begins_once(look, heard):
    for _ in range(3):
        actions.pause("emails")
        look(2)
        actions.resume("emails")
        look()

    assert heard == [("began", "emails", "paused")]


def test_one_that_only_one_look_has_found_is_forgotten(look, heard, monkeypatch):
    actions.pause("emails")
    look()
    actions.resume("emails")
    with monkeypatch.context() as patch:
        patch.setattr(problem_watch, "QUIET_MS", 0)
        look()
    actions.pause("emails")
    look()

    assert heard == []


def test_the_end_says_what_was_seen_last_and_how_long_it_lasted(look, no_quiet_time):
    actions.pause("emails", who="ada", reason="a deploy")
    look(3)
    actions.resume("emails")
    no_quiet_time()
    with hears(problem_ended) as ended:
        look()

    (arguments,) = ended
    problem = arguments["problem"]
    assert (problem.queue, problem.kind, problem.figure) == ("emails", "paused", None)
    assert "Paused by ada" in problem.sentence
    assert timedelta() < arguments["lasted"] < timedelta(minutes=1)


def test_the_figures_of_a_problem_are_those_of_the_function(look):
    publish_many("default", [("welcome", 1)])
    with hears(problem_began) as told:
        look(2)

    began = [arguments["problem"] for arguments in told]
    assert began == inspector.problems(thresholds=Thresholds())
    assert [problem.kind for problem in began] == ["unconsumed"]


def test_several_watchers_send_each_signal_once(look, heard, watcher, no_quiet_time):
    others = [watcher, ProblemWatcher(), ProblemWatcher()]
    actions.pause("emails")
    for each in others * 2:
        look(by=each)
    actions.resume("emails")
    no_quiet_time()
    for each in others:
        look(by=each)

    assert heard == [("began", "emails", "paused"), ("ended", "emails", "paused")]


def test_only_one_of_them_looks(heard, redis_client, monkeypatch):
    monkeypatch.setattr(problem_watch, "EVERY", 600.0)
    first, second = ProblemWatcher(), ProblemWatcher()
    first.run_once()
    looks = []
    monkeypatch.setattr(problem_watch, "overview", lambda names: looks.append(names) or [])
    before = script_calls(redis_client)

    second.run_once()

    assert looks == []
    # The claims of both queues.
    assert script_calls(redis_client) - before == 2


def test_two_that_look_at_the_same_moment_announce_it_once():
    notes = ProblemNotes(get_config().queue("emails"), open_transport("inspect"))

    assert notes.write([], begun=["late"], ended=[]) == {"late"}
    assert notes.write([], begun=["late"], ended=[]) == set()
    assert notes.write([], begun=[], ended=["late"]) == {"late"}
    assert notes.write([], begun=[], ended=["late"]) == set()


def test_while_a_queue_cannot_be_read_nothing_of_it_ends(look, heard, redis_client, no_quiet_time):
    actions.pause("emails")
    look(2)
    no_quiet_time()
    redis_client.set(get_config().queue("emails").keys.ready, "mine")
    look(2)
    assert heard == [("began", "emails", "paused")]
    look(2)
    redis_client.delete(get_config().queue("emails").keys.ready)


def test_what_another_program_has_written_is_harmless(look, heard, redis_client, mq_settings):
    values = ("", "{}", "[]", '{"first": "x", "last": [], "sentence": 7, "figure": true}', b"\xff")
    names = [f"q{number}" for number in range(len(values))]
    mq_settings(QUEUES={name: {} for name in names})
    for name, value in zip(names, values, strict=True):
        nonsense = {"problem:paused": value, "problem:late": value, "problem-announced:late": "1"}
        redis_client.hset(get_config().queue(name).keys.control, mapping=nonsense)
        actions.pause(name)

    look(3)

    expected = [[("ended", name, "late"), ("began", name, "paused")] for name in names]
    assert [[event for event in heard if event[1] == name] for name in names] == expected


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit("broken")], ids=repr)
def test_a_receiver_that_fails_stops_nothing(look, heard, caplog, error):
    for queue in ("default", "emails"):
        actions.pause(queue)
    with hears(problem_began, raises=error), caplog.at_level(logging.ERROR):
        look(2)

    assert {queue for _, queue, _ in heard} == {"default", "emails"}
    assert "broken" in caplog.text


def test_a_receiver_may_take_its_time(watcher, look):
    seen = []
    actions.pause("emails")
    # Before the start, because the signal is sent once.
    with hears(problem_began, to=lambda **_: seen.append(watcher.progress())):
        watcher.start()
        wait_until(lambda: seen)
        wait_until(lambda: list(watcher.progress()) == [watcher.name])
        assert seen == [{}]
        watcher.stop()
        assert watcher.join(60)


def test_one_queue_that_fails_does_not_affect_the_others(look, heard, monkeypatch, caplog):
    written = problem_watch.ProblemNotes.write

    def write(self, *arguments, **options):
        if "default" in self._key:
            raise ValueError("broken")
        return written(self, *arguments, **options)

    monkeypatch.setattr(problem_watch.ProblemNotes, "write", write)
    for queue in ("default", "emails"):
        actions.pause(queue)
    look(2)

    assert heard == [("began", "emails", "paused")]
    assert "default failed; continuing with the others" in caplog.text


def test_queues_on_a_server_that_is_away_are_left_out(mq_settings, look, heard):
    with PrivateServer() as gone:
        url = gone.url
    mq_settings(QUEUES={"emails": {}, "far": {"CONNECTION": url}})
    actions.pause("emails")
    look(2)
    assert heard == [("began", "emails", "paused")]

    mq_settings(CONNECTION=url)
    with pytest.raises(ConnectionLost):
        look()


def test_without_receivers_nothing_is_watched(heard):
    assert ProblemWatcher in [type(found) for found in watchers()]
    problem_began.receivers, problem_ended.receivers = [], []
    assert ProblemWatcher not in [type(found) for found in watchers()]


@pytest.fixture
def watching(monkeypatch):
    monkeypatch.setenv("MQ_TEST_APPS", "tests.observability.watching")


def test_a_supervisor_sends_each_signal_once(watching, trees, history):  # noqa: F811
    tree = trees()
    wait_until(lambda: len(inspector.queue("default").consumers) == 1, timeout=30)
    actions.pause("default", who="ada")
    (began,) = history.wait_for("began")
    assert (began["queue"], began["problem"]) == ("default", "paused")
    assert began["sentence"].startswith("default is paused. Paused by ada")
    actions.resume("default")
    (ended,) = history.wait_for("ended")
    assert (ended["queue"], ended["problem"]) == ("default", "paused")
    assert 0 < ended["seconds"] < 30
    # The receiver has failed, and the supervisor goes on.
    assert tree.stop() == 0
    assert (len(history.lines("began")), len(history.lines("ended"))) == (1, 1)


def test_messages_behind_a_busy_process_are_late_wherever_they_wait(trees, publish, history):  # noqa: F811
    for _ in range(6):
        publish(["sleep", 3600])
    trees("--threads", "1")
    history.wait_for("start")

    view = wait_until(lambda: view if (view := inspector.queue("default")).not_started == 5 else None)
    # How many of them the process holds depends on when it fetched: those that it cannot start soon it hands back.
    assert view.fetched == view.pending - 1
    limits = Thresholds(max_age=0.1, max_ready=4)

    def all_are_known():
        """What was fetched or handed back since the last heartbeat is not known yet, or is counted twice."""
        found = inspector.problems("default", thresholds=limits)
        return found if [each.figure for each in found if each.kind == "ready"] == [5] else None

    late, _ = wait_until(all_are_known)
    assert (late.kind, late.threshold) == ("late", 0.1)
