"""Schedules in settings and on tasks."""

from datetime import UTC, datetime, timedelta

import pytest

from mq_django import cron, every, registry, task
from mq_django.conf import read
from mq_django.core import schedules
from mq_django.core.schedules import NEVER, Every, Scheduled
from mq_django.errors import ConfigurationError
from mq_django.task_backend.compat import InvalidTask
from tests.optional import needs_croniter

QUEUES = {"default": {}, "emails": {}}


def one(**options):
    config, problems = read({"QUEUES": QUEUES, "SCHEDULES": {"nightly": options}})
    assert problems == []
    return config.schedules["nightly"]


@needs_croniter
def test_a_schedule_in_settings_publishes_a_message():
    entry = one(
        queue="emails", message="report", data={"n": 1}, cron="0 3 * * *", timezone="Europe/Berlin", priority="low"
    )
    assert (entry.queue, entry.message, entry.data, entry.priority) == ("emails", "report", {"n": 1}, -10)
    assert entry.when == cron("0 3 * * *", timezone="Europe/Berlin")


def test_the_data_of_a_schedule_may_be_true():
    assert one(message="switch", data=True, every=60).data is True


def test_no_tick_is_before_the_start_or_after_the_end():
    entry = one(message="report", every=3600, starts="2026-11-20T10:30Z", ends=datetime(2026, 11, 20, 12, tzinfo=UTC))
    hours = [int(datetime(2026, 11, 20, hour, tzinfo=UTC).timestamp() * 1000) for hour in (1, 11, 12, 18)]
    assert [entry.next_ms(moment, UTC) for moment in hours] == [hours[1], hours[2], NEVER, NEVER]
    assert next(entry.due_ms(hours[1], hours[3], UTC)) == hours[2]
    on_time = one(message="report", every=3600, starts="2026-11-20T11:00+00:00")
    assert on_time.next_ms(hours[0], UTC) == hours[1]


def test_a_schedule_in_settings_runs_a_task():
    entry = one(task="shop.tasks.report", args=[7], kwargs={"full": True}, every=timedelta(hours=1), expires=60)
    assert (entry.queue, entry.message) == ("default", "shop.tasks.report")
    assert entry.data == {"args": [7], "kwargs": {"full": True}}
    assert (entry.when, entry.expires) == (every(hours=1), timedelta(minutes=1))


#: The options of a schedule, and what is said of them.
WRONG = [
    ({"message": "report"}, 'must have either "cron" or "every"'),
    ({"every": 0.1, "message": "report"}, "['every'] must be a second or more, not 0.1"),
    ({"every": True, "message": "report"}, "['every'] must be"),
    ({"every": 1e18, "message": "report"}, "['every'] must be a timedelta or a number of seconds, not 1e+18"),
    ({"every": 5, "message": ""}, "['message']: A message's name is 1 to"),
    ({"every": 5, "message": "report", "when": 1}, "['when'] is not an option"),
    ({"every": 5, "message": "report", "expires": 0}, "['expires'] must be a timedelta"),
    ({"every": 5, "task": "report", "args": 7}, "['args'] must be list or tuple"),
    ({"every": 5, "message": "report", "queue": "nowhere"}, "names the queue 'nowhere'"),
    ({"every": 5, "message": "report", "priority": 101}, "-100 to 100, or high, normal, low, not 101"),
    ({"every": 5, "message": "report", "priority": "urgent"}, "-100 to 100, or high, normal, low, not 'urgent'"),
    ({"every": 5, "message": "report", "timezone": "Europe/Berlin"}, "['timezone'] needs 'cron'"),
    ({"every": 5, "message": "report", "args": [1]}, "['args'] needs 'task'"),
    ({"every": 5, "task": "report", "data": 1}, "['data'] needs 'message'"),
    ({"every": 5, "message": "report", "starts": "tomorrow"}, "['starts'] must be a time"),
    ({"every": 5, "message": "report", "ends": "1969-12-31T00:00Z"}, "from 1970 on"),
    ({"every": 5, "message": "report", "starts": "2026-02-01", "ends": "2026-01-01"}, "must not be before"),
    ("hourly", "a dict of options"),
]
WRONG_CRON = [
    ({"cron": "* * * * *"}, 'must have either "message" or "task"'),
    ({"cron": "* * * * *", "every": 5, "message": "report"}, 'either "cron" or "every", not both'),
    ({"cron": "* * * *", "message": "report"}, "['cron']: '* * * *' is not"),
    ({"cron": "* * * * *", "timezone": "Mars", "message": "report"}, "['timezone']: 'Mars' is not"),
]


@pytest.mark.parametrize("table", [WRONG, pytest.param(WRONG_CRON, marks=needs_croniter)], ids=["all", "cron"])
def test_what_is_wrong_with_a_schedule_is_named(table, subtests):
    for options, said in table:
        with subtests.test(options=options):
            _, (problem,) = read({"QUEUES": QUEUES, "SCHEDULES": {"nightly": options}})
            assert said in problem.message
            assert "nightly" in problem.message


def test_everything_that_is_wrong_is_named_by_its_path():
    wrong = {
        "nightly": {"every": "soon", "priority": 1000, "args": [1], "moons": 1},
        "hourly": {"every": 60, "message": "report", "queue": "nowhere"},
        "good": {"every": 60, "message": "report"},
        "": {"every": 60, "message": "report"},
        "none": None,
    }
    config, problems = read({"QUEUES": QUEUES, "SCHEDULES": wrong})
    where = 'MQ_DJANGO["SCHEDULES"]'
    assert [problem.setting for problem in problems] == [
        *(f"{where}['nightly']{part}" for part in ("['every']", "['priority']", "['moons']", "", "['args']")),
        *(f"{where}[{name!r}]" for name in ("hourly", "", "none")),
    ]
    assert all(problem.message.startswith(problem.setting) for problem in problems)
    assert list(config.schedules) == ["good"]


def test_a_queue_in_rsmq_s_format_has_no_schedules():
    queues = {**QUEUES, "legacy": {"STORE": "rsmq"}}
    entry = {"every": 5, "message": "report", "queue": "legacy"}
    _, problems = read({"QUEUES": queues, "SCHEDULES": {"nightly": entry}})
    assert "RSMQ format has no schedules" in problems[0].message


def test_without_croniter_the_check_says_what_to_install(monkeypatch):
    monkeypatch.setattr(schedules, "_croniter", lambda: None)
    _, problems = read({"QUEUES": QUEUES, "SCHEDULES": {"nightly": {"cron": "* * * * *", "message": "report"}}})
    assert "mq-django[schedules]" in problems[0].message


def nightly():
    """Do nothing: a task needs a function of a module."""


def with_context(context):
    """Do nothing."""


def with_argument(number):
    """Do nothing."""


@pytest.fixture
def registered(monkeypatch, mq_settings):
    monkeypatch.setattr(registry, "_schedules", {})
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    return registry.schedules


def test_a_task_with_a_schedule_is_registered_under_its_path(registered):
    made = task(queue_name="emails", priority=5, schedule=every(days=1))(nightly)
    assert made.module_path in registry._schedules
    entry = registry._schedules[made.module_path]
    assert entry.data == {"args": [], "kwargs": {}}
    assert (entry.queue, entry.message, entry.priority) == ("emails", made.module_path, 5)


def test_a_task_that_takes_its_context_may_have_a_schedule(registered):
    task(takes_context=True, schedule=every(minutes=5))(with_context)
    assert len(registry._schedules) == 1


def test_a_scheduled_task_cannot_take_arguments(registered):
    with pytest.raises(InvalidTask, match="without arguments"):
        task(schedule=every(minutes=5))(with_argument)


def test_a_schedule_is_made_by_cron_or_every(registered):
    with pytest.raises(InvalidTask, match="cron"):
        task(schedule="* * * * *")(nightly)


def test_two_schedules_of_one_name_are_an_error(registered):
    both = [
        Scheduled(name="n", queue="emails", message="m", data=1, when=Every(timedelta(1)), where=where)
        for where in ("a", "b")
    ]
    registry.schedule(both[0])
    registry.schedule(both[0])
    with pytest.raises(ConfigurationError, match="Two schedules have the name 'n': a and b"):
        registry.schedule(both[1])
