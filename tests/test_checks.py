import sys
from itertools import product
from types import ModuleType
from weakref import WeakKeyDictionary

import pytest
from django.core.checks import run_checks
from django.dispatch import Signal
from django.urls import clear_url_caches, include, path
from django.utils.functional import SimpleLazyObject

from mq_django import checks, every, handler, on_signal, registry, subscriber, task
from mq_django.checks import TAG
from mq_django.errors import InvalidWorkflow
from mq_django.registry import Handler, _handlers, queues_with_handlers
from mq_django.task_backend.backend import _tasks
from mq_django.task_backend.compat import InvalidTask
from mq_django.workflows import chain, parallel, workflow
from tests.task_api import DUMMY, IMMEDIATE, plain_task
from tests.testapp import tasks

pytestmark = pytest.mark.versions

MQ = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://localhost:6379/1"}
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}

#: Those of the shop's handlers.
QUEUES = {name: {} for name in ("assistant", "default", "emails", "notifications", "sms")}


@pytest.fixture
def found(settings):
    """Run our checks with these settings, and return the ids of what they say."""

    def run(connection="mq", *, deploy=False, caches=None, **others):
        settings.MQ_DJANGO = {"CONNECTION": connection, "TOPICS": {"orders": {}}, "QUEUES": QUEUES, **others}
        settings.CACHES = {"default": LOCMEM, "mq": MQ, **(caches or {})}
        return run_checks(tags=[TAG], include_deployment_checks=deploy)

    return run


def print_nothing():
    """A function for tasks."""


def queues_in_use():
    """Return those of all handlers and tasks that are declared."""
    return {name: {} for name in ("default", *queues_with_handlers())}


def ids(messages):
    return [message.id.removeprefix("mq_django.") for message in messages]


def test_good_settings_pass(found, subtests):
    for connection in ["mq", "embedded", "redis://localhost:6379/2", "unix:///run/redis.sock"]:
        with subtests.test(connection=connection):
            assert found(connection) == []


def test_everything_wrong_is_named_with_a_hint(found):
    messages = found(NAMESPACE="", QUEUES={"emails": {"MAX_ATTEMPTS": 0, "OUTBOX": 1}, "a b": {}})
    assert ids(messages) == ["E001"] * 4
    assert all(message.hint for message in messages)
    assert any("NAMESPACE" in message.msg and "NAMESPACE" in message.hint for message in messages)


#: What a module declares when it is imported.
DECLARATIONS = {
    "task": lambda: task(print_nothing),
    "task of Django": lambda: plain_task(print_nothing),
    "schedule": lambda: task(schedule=every(minutes=1))(print_nothing),
    "options": lambda: tasks.noop.using(queue_name="emails", delay=3, priority=1),
    "handler": lambda: handler("emails", "declared")(lambda _: None),
    "subscriber": lambda: subscriber("orders", group="declared")(lambda _: None),
    "trigger": lambda: on_signal(Signal(), delay=3)(tasks.note),
    "workflow": lambda: workflow(on_finish=tasks.note)(lambda flow: flow.add(tasks.noop)),
    "chain": lambda: chain(tasks.noop, (tasks.note, 1)),
    "parallel": lambda: parallel(tasks.noop, chain(tasks.noop)),
}


def test_nothing_that_is_declared_reads_wrong_settings(found, subtests, monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(registry, "_starts", dict(registry._starts))
    monkeypatch.setattr(registry, "_schedules", dict(registry._schedules))
    for wrong in ({"NAMESPACE": ""}, {"QUEUES": []}, {"NONE": 1}, {"SCHEDULES": {"a": {}}}):
        assert "E001" in ids(found(**wrong))
        for name, declare in DECLARATIONS.items():
            with subtests.test(name, wrong=wrong):
                declare()


#: Settings without a queue, or with one in RSMQ's format.
NO_QUEUES = {"QUEUES": {}, "TOPICS": {}}
LEGACY = {"QUEUES": {**QUEUES, "emails": {"STORE": "rsmq"}}}

#: What is declared, the settings that do not fit it, and what the check says and its use raises. A schedule has no use.
UNFIT = [
    (
        lambda: task(queue_name="sms")(print_nothing),
        {"QUEUES": {"default": {}, "emails": {}, "notifications": {}}},
        (
            "tests.test_checks.print_nothing: Queue 'sms' is not valid for backend. "
            'MQ_DJANGO["QUEUES"] has default, emails, notifications.'
        ),
        lambda made: made.enqueue(),
    ),
    (
        lambda: task(print_nothing),
        NO_QUEUES,
        "tests.test_checks.print_nothing: Queue 'default' is not valid for backend. MQ_DJANGO[\"QUEUES\"] has none.",
        lambda made: made.enqueue(),
    ),
    (
        lambda: task(queue_name="emails", schedule=every(minutes=1))(print_nothing),
        LEGACY,
        "tests.test_checks.print_nothing names the queue 'emails', whose RSMQ format has no schedules.",
        None,
    ),
    (
        lambda: workflow(on_finish=tasks.note.using(queue_name="emails"))(workflow_of_one),
        LEGACY,
        (
            "tests.test_checks.workflow_of_one: Task tests.testapp.tasks.note cannot be a step: "
            "Queue 'emails' has RSMQ's format, which has no steps of workflows."
        ),
        lambda made: made.start(),
    ),
    (
        lambda: chain(tasks.noop, parallel(tasks.noop.using(queue_name="gone"))),
        {},
        (
            "parallel: Task tests.testapp.tasks.noop cannot be a step: No queue 'gone' in MQ_DJANGO[\"QUEUES\"]; "
            "configured: assistant, default, emails, notifications, sms."
        ),
        lambda made: made.start(),
    ),
]


def workflow_of_one(flow):
    flow.add(tasks.noop)


def test_what_does_not_fit_the_settings_is_named_by_the_check_and_at_its_use(found, subtests, monkeypatch):
    for number, (declare, wrong, sentence, use) in enumerate(UNFIT):
        with subtests.test(number=number), monkeypatch.context() as patched:
            for name in ("_handlers", "_schedules"):
                patched.setattr(registry, name, {})
            patched.setattr(registry, "_composed", WeakKeyDictionary())
            patched.delitem(_tasks, f"{__name__}.print_nothing", raising=False)
            assert "E015" not in ids(found(**wrong))
            made = declare()
            (message,) = (each for each in found(**wrong) if each.id == "mq_django.E015")
            assert message.msg == sentence
            if use is not None:
                with pytest.raises((InvalidTask, InvalidWorkflow)) as caught:
                    use(made)
                assert sentence.endswith(f": {str(caught.value).rstrip('.')}.")


def test_no_password_is_shown(found, subtests):
    for connection in ["redis:/:geheim@localhost", "redis://:geheim@localhost?x=1", "x://u:ge/heim@h"]:
        with subtests.test(connection=connection):
            (message,) = found(connection)
            assert "heim" not in message.msg + message.hint


REDIS = "django.core.cache.backends.redis.RedisCache"
#: A connection, the cache of the alias "mq", and the one problem of both: its id and what is said.
WRONG_CONNECTIONS = [
    ("http://localhost", {}, "E001", "CONNECTION"),
    ("queues", {}, "E002", "'queues'"),
    *(("mq", {"BACKEND": backend}, "E003", "") for backend in (LOCMEM["BACKEND"], REDIS)),
    *(("mq", {"LOCATION": where}, "E004", "") for where in (None, "", [], "localhost:6379", "127.0.0.1:6379:1")),
    ("redis://localhost:notaport", {}, "E008", "is not a usable Redis URL"),
    ("redis://[::1/0", {}, "E008", "is not a usable Redis URL"),
    # redis-py would connect to 6379.
    *((f"{scheme}://localhost:0", {}, "E008", "from 1 to 65535") for scheme in ("redis", "rediss")),
    *((f"redis+{kind}", {}, "E008", "") for kind in ("cluster://localhost:0", "sentinel://localhost:0/master")),
    ("mq", {"LOCATION": "redis://localhost:0/1"}, "E008", "from 1 to 65535"),
    ("redis://localhost/abc", {}, "E008", "its database is not a number"),
    ("rediss://localhost?sll_ca=1", {}, "E008", "has an option that redis-py does not take"),
    ("mq", {"OPTIONS": {"CONNECTION_POOL_KWARGS": {"unknown": 1}}}, "E008", "CACHES['mq']"),
]


def test_a_connection_that_can_never_work_is_named_once(found, subtests):
    for connection, cache, wrong, said in WRONG_CONNECTIONS:
        with subtests.test(connection=connection, cache=cache):
            (message,) = found(connection, caches={"mq": MQ | cache})
            assert ids([message]) == [wrong]
            assert said in message.msg
            assert message.hint


def test_the_server_of_a_queue_or_topic_is_checked_as_that_of_the_project(found, subtests):
    for what, (connection, wrong) in product(
        ["QUEUES", "TOPICS"],
        [("elsewhere", "E002"), ("redis://h/abc", "E008"), ("http://h", "E001"), ("unix:///s", "")],
    ):
        with subtests.test(what=what, connection=connection):
            needed = {"orders": {}} if what == "TOPICS" else queues_in_use()
            messages = found("embedded", **{what: {"apart": {"CONNECTION": connection}, **needed}})
            assert "".join(ids(messages)) == wrong
            assert all(repr("apart") in message.msg and "CONNECTION" in message.msg for message in messages)


def test_a_mistyped_setting_is_told_which_there_are(found):
    (message,) = found(QEUES={})
    assert "QUEUES" in message.hint
    assert "TOPICS" in message.hint


def test_a_cache_on_the_same_database_is_a_warning(found, subtests):
    for neighbour, connection in product(
        [
            {**MQ},
            {**MQ, "LOCATION": "redis://127.0.0.1:6379/1"},
            {**MQ, "LOCATION": "redis://localhost/1"},
            {**MQ, "LOCATION": "redis://user:secret@LOCALHOST:6379/1"},
            {**MQ, "LOCATION": "redis://localhost:6379?db=1"},
            {**MQ, "LOCATION": ["redis://localhost:6379/1", "redis://replica:6379/1"]},
            {**MQ, "LOCATION": "redis://localhost:6379", "OPTIONS": {"db": 1}},
            {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://localhost:6379/1"},
        ],
        ["mq", "redis://localhost:6379/1"],
    ):
        with subtests.test(neighbour=neighbour, connection=connection):
            caches = {"mq": MQ if connection == "mq" else LOCMEM, "pages": neighbour}
            (message,) = found(connection, caches=caches)
            assert ids([message]) == ["W001"]
            assert "'pages'" in message.msg
            assert "cache.clear()" in message.msg


def test_a_cache_elsewhere_is_none(found, subtests):
    for neighbour in [
        {**MQ, "LOCATION": "redis://localhost:6379/2"},
        {**MQ, "LOCATION": "redis://localhost:6379"},
        {**MQ, "LOCATION": "redis://localhost:6380/1"},
        {**MQ, "LOCATION": "redis://elsewhere:6379/1"},
        {**MQ, "LOCATION": "redis://localhost:port/1"},
        {**MQ, "LOCATION": "unix:///run/redis.sock?db=1"},
        {"BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache", "LOCATION": "redis://localhost:6379/1"},
        {"BACKEND": "django_redis.cache.RedisCache"},
    ]:
        with subtests.test(neighbour=neighbour):
            assert found(caches={"pages": neighbour}) == []


def test_a_unix_socket_can_be_shared_too(found):
    shared = {**MQ, "LOCATION": "unix:///run/redis.sock?db=1"}
    assert ids(found("unix:///run/redis.sock?db=1", caches={"pages": shared})) == ["W001"]
    assert found("unix:///run/redis.sock?db=2", caches={"pages": shared}) == []


def test_the_default_cache_is_never_kept_for_queues(found):
    assert ids(found("default", caches={"default": MQ, "mq": LOCMEM})) == ["W001"]


def test_an_embedded_server_is_for_development(found):
    assert ids(found("embedded", deploy=True)) == ["W002"]
    assert found("mq", deploy=True) == []


SIGNAL = "django.db.models.signals.post_save"
#: Triggers that work.
MESSAGE = {"signal": SIGNAL, "queue": "default", "name": "x"}
TASK = {"signal": SIGNAL, "task": "tests.testapp.tasks.noop"}


def test_a_trigger_that_cannot_work_is_named(found, subtests):
    once = TASK | {"delay": 5, "unique": "a"}
    for entry in [
        *({}, {"signal": SIGNAL}, TASK | {"task": "no.such.task"}, TASK | {"task": "tests.testapp.models.Cart"}),
        *(MESSAGE | {"signal": f"{SIGNAL}d"}, MESSAGE | {"signal": "django.db.models.Model"}),
        *(MESSAGE | {"queue": "faxes"}, MESSAGE | {"name": ""}, MESSAGE | {"sender": "shop.Nothing"}),
        *(MESSAGE | {"sender": "testapp.No.Such"}, MESSAGE | {"uniq": "a"}, MESSAGE | {"unique": "a"}),
        *(MESSAGE | {"delay": "1h"}, MESSAGE | {"data": "no.such.function"}, MESSAGE | {"data": "{instance[0]}"}),
        *(MESSAGE | {"when": "no.such.function"}, MESSAGE | {"args": []}, TASK | {"args": "{instance.pk}"}),
        *(TASK | {"queue": "default"}, TASK | {"cancel_on": [(SIGNAL, "testapp.Order")]}),
        *(once | {"cancel_on": [SIGNAL]}, once | {"cancel_on": 7}),
    ]:
        with subtests.test(entry=entry):
            (message,) = found(SIGNALS=[entry])
            assert ids([message]) == ["E005"]
            assert 'MQ_DJANGO["SIGNALS"][0]' in message.msg
            assert message.hint


#: The arguments of a trigger, and what says why `send_receipt(order_id, *, copies=1)` does not take them.
MISFITS = [
    ({"args": {"zz": 1}}, "does not take args=: missing a required argument: 'order_id'"),
    (
        {"args": {"order_id": "{instance.pk}", "copy": 2}},
        "does not take args=: got an unexpected keyword argument 'copy'",
    ),
    ({"args": []}, "does not take args=: missing a required argument: 'order_id'"),
    ({"task": tasks.noop}, "does not take the pk, which is the default of args=: too many positional arguments"),
    ({}, None),
    ({"args": {"order_id": "{instance.pk}"}}, None),
    ({"args": lambda instance: {"zz": instance}}, None),
]


@pytest.mark.parametrize(("options", "said"), MISFITS)
def test_a_task_that_does_not_take_the_arguments_of_its_trigger_is_named(found, subtests, options, said):
    given = {"task": tasks.send_receipt, **options}
    with subtests.test("in the settings"):
        in_settings = found(SIGNALS=[{"signal": SIGNAL, **given}])
        assert ids(in_settings) == ([] if said is None else ["E005"])
        assert all(said in message.msg and 'MQ_DJANGO["SIGNALS"][0]' in message.msg for message in in_settings)
    with subtests.test("in code"):
        signal = Signal()
        on_signal(signal, **options if "args" in options else {})(given["task"])
        in_code = found()
        assert ids(in_code) == ([] if said is None else ["E005"])
        assert all(said in message.msg and given["task"].module_path in message.msg for message in in_code)


def test_triggers_that_can_work_pass(found):
    entry = {
        "signal": ["django.db.models.signals.post_save", "django.db.models.signals.post_delete"],
        "sender": ["testapp.Cart", "tests.testapp.models.Order", "auth.User"],
        "task": "tests.testapp.tasks.note",
        "delay": 5,
        "unique": "{instance.pk}",
        "when": "tests.testapp.triggers.is_owned",
        "args": ["{instance.pk}"],
        "cancel_on": [("django.db.models.signals.post_delete", "testapp.Cart")],
    }
    assert found(SIGNALS=[entry]) == []


def test_handlers_of_a_queue_that_is_not_configured_are_named(found, monkeypatch):
    monkeypatch.setattr(registry, "_handlers", {})
    handler("default", "x")(first_handler)
    assert found(TOPICS={"orders": {}}) == []
    handler("emial", "x")(first_handler)
    (warning,) = found(TOPICS={"orders": {}})
    assert ids([warning]) == ["W004"]
    assert "'emial'" in warning.msg


def first_handler(message): ...


@pytest.fixture
def plain(found, settings, monkeypatch):
    """A task of Django's in an installed app; TASKS is not set."""
    assert not settings.is_overridden("TASKS")
    monkeypatch.setattr(tasks, "plain", plain_task(module_level), raising=False)
    return settings


def module_level(): ...


def test_a_task_that_runs_where_it_is_enqueued_is_named(found, plain):
    (warning,) = found()
    assert ids([warning]) == ["W005"]
    assert f"{__name__}.module_level" in warning.msg


def test_the_search_for_tasks_evaluates_no_lazy_object(found, monkeypatch):
    def read_a_table():
        raise AssertionError

    monkeypatch.setattr(tasks, "lazy", SimpleLazyObject(read_a_table), raising=False)
    assert found() == []


def test_a_backend_that_was_chosen_is_no_problem(found, plain, subtests):
    for backend in (IMMEDIATE, DUMMY):
        with subtests.test(backend=backend):
            plain.TASKS = {"default": {"BACKEND": backend}}
            assert found() == []


def test_a_schedule_whose_task_cannot_run_is_named(found, subtests):
    for options, said in [
        ({"task": "shop.tasks.nope"}, "'shop.tasks.nope' is not the path of a task of this project"),
        ({"task": "tests.testapp.tasks.send_receipt"}, "missing a required argument: 'order_id'"),
        ({"task": "tests.testapp.tasks.send_receipt", "kwargs": {"order_id": 7, "copy": 2}}, "'copy'"),
    ]:
        with subtests.test(options=options):
            others = queues_in_use()
            good = {"every": 60, "queue": "emails", "task": "tests.testapp.tasks.send_receipt", "args": [7]}
            (error,) = found(
                QUEUES=others, SCHEDULES={"good": good, "daily": {"every": 60, "queue": "emails", **options}}
            )
            assert ids([error]) == ["E010"]
            assert said in error.msg
            assert "'daily'" in error.msg


def test_a_schedule_may_have_a_task_of_another_project(found):
    others = queues_in_use()
    entry = {"every": 60, "queue": "partners", "task": "partner.tasks.ping"}
    assert found(QUEUES={**others, "partners": {"EXTERNAL": True}}, SCHEDULES={"ping": entry}) == []


def test_a_topic_that_nobody_configured_is_read_by_nobody(found):
    (warning,) = found(TOPICS={})
    assert ids([warning]) == ["W003"]
    assert "'orders'" in warning.msg


def test_a_handler_in_a_queue_that_others_handle_never_runs(found, monkeypatch):
    monkeypatch.setitem(_handlers, ("partners", "ping"), Handler(name="ping", queue="partners", call=print))
    others = queues_in_use()
    assert found(QUEUES={**others, "partners": {}}) == []
    (warning,) = found(QUEUES={**others, "partners": {"EXTERNAL": True}})
    assert ids([warning]) == ["W006"]
    assert "'ping' in the queue 'partners'" in warning.msg


class TestMetricsViews:
    """The token of a view of metrics must be hard to guess."""

    @pytest.fixture
    def url(self, settings, monkeypatch):
        urls = ModuleType("urls_of_metrics")
        monkeypatch.setitem(sys.modules, urls.__name__, urls)

        def use(token):
            def metrics(request):
                raise NotImplementedError

            metrics.mq_django_weak_token = token
            urls.urlpatterns = [path("ops/", include([path("metrics/", metrics)]))]
            settings.ROOT_URLCONF = urls.__name__
            clear_url_caches()

        yield use
        clear_url_caches()

    def test_one_that_can_be_guessed_is_an_error(self, url):
        url(True)
        (found,) = checks.check_metrics_views()
        assert found.id == "mq_django.E011"
        assert "'ops/metrics/'" in found.msg

    def test_others_are_none(self, url):
        url(False)
        assert checks.check_metrics_views() == []

    def test_a_project_without_urls_has_none(self, settings):
        del settings.ROOT_URLCONF
        assert checks.check_metrics_views() == []
