from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from mq_django import conf, queues
from mq_django.checks import check_connection, check_settings
from mq_django.conf import EMBEDDED, QueueConfig, RsmqConfig, get_config, read
from mq_django.core.breakers import Breaker
from mq_django.core.clock import aware
from mq_django.core.options import History, StreamLimits, options_of
from mq_django.core.project import Thresholds
from mq_django.core.retries import RetryPolicy
from mq_django.errors import ConfigurationError, UnknownQueue, UnknownTopic
from mq_django.inspector import problem_sentences
from mq_django.producers.schedules import checked
from mq_django.task_backend.running import moment

pytestmark = pytest.mark.versions

OTHER_FORMS = {"TEST", "QUEUES", "TOPICS", "SCHEDULES", "THRESHOLDS", "RATE_LIMIT", "CONCURRENCY", "VT"}


def one_problem(raw):
    _, problems = read(raw)
    assert len(problems) == 1, problems
    return problems[0]


def queue(**options):
    config, problems = read({"QUEUES": {"emails": options}})
    assert problems == []
    return config.queue("emails")


def test_an_empty_setting_gives_one_queue_on_a_server_of_its_own():
    config, problems = read({})
    assert problems == []
    assert list(config.queues) == ["default"]
    assert config.connection == EMBEDDED
    assert config.namespace == "mq"
    assert config.signals == ()


def test_the_embedded_server_lives_beside_the_project(settings):
    settings.BASE_DIR = "/srv/shop"
    assert read({})[0].embedded_directory == Path("/srv/shop/.mq_django")
    assert read({"EMBEDDED_DIRECTORY": "/var/lib/mq"})[0].embedded_directory == Path("/var/lib/mq")


def test_without_a_base_dir_it_lives_where_the_process_started(settings):
    del settings.BASE_DIR
    assert read({})[0].embedded_directory == Path.cwd() / ".mq_django"


def test_a_connection_is_an_alias_a_url_or_embedded(subtests):
    for connection in [
        "mq",
        "embedded",
        "redis://localhost/1",
        "rediss://:secret@redis.example:6380/2",
        "unix:///run/redis.sock",
    ]:
        with subtests.test(connection=connection):
            config, problems = read({"CONNECTION": connection})
            assert problems == []
            assert config.connection == connection


def test_a_queue_has_the_namespace_of_the_setting():
    config, problems = read({"NAMESPACE": "shop:prod", "QUEUES": {"emails": {}}})
    assert problems == []
    assert config.queue("emails").keys.ready == "shop:prod:{emails}:ready"


def test_signals_are_frozen():
    entry = {"signal": "django.db.models.signals.post_save"}
    config, _ = read({"SIGNALS": [entry]})
    assert config.signals == (entry,)
    with pytest.raises(TypeError):
        config.signals[0]["signal"] = "other"


#: An option of a queue, a value for it, and how it is read.
READ = [
    ("EXTERNAL", True, True),
    ("STORE", "stream", "stream"),
    ("VISIBILITY_TIMEOUT", 30, timedelta(seconds=30)),
    ("VISIBILITY_TIMEOUT", 1.5, timedelta(milliseconds=1500)),
    ("VISIBILITY_TIMEOUT", timedelta(minutes=1), timedelta(minutes=1)),
    ("MAX_ATTEMPTS", 1, 1),
    ("RETRY", RetryPolicy(factor=3), RetryPolicy(factor=3)),
    ("TIMEOUT", 5, timedelta(seconds=5)),
    ("TIMEOUT", None, None),
    ("MAX_SIZE", 1024, 1024),
    ("CONNECTION", "redis://h:6380/1", "redis://h:6380/1"),
    ("CONNECTION", None, ""),
    ("BREAKER", None, None),
    ("BREAKER", {"of": 10, "by": "key"}, Breaker(of=10, by="key")),
    ("ON_EXPIRE", "bury", "bury"),
    ("MAX_DEPTH", 10, 10),
    ("MAX_DEPTH", None, None),
    ("RESULT_TTL", 0, timedelta(0)),
    ("RESULT_TTL", timedelta(days=2), timedelta(days=2)),
    ("HISTORY", None, None),
    ("HISTORY", 3600, History(timedelta(hours=1), 100_000, data=False)),
    ("HISTORY", {"AGE": timedelta(days=3)}, History(timedelta(days=3), 100_000, data=False)),
    ("HISTORY", {"AGE": 60, "COUNT": 1000, "DATA": True}, History(timedelta(minutes=1), 1000, data=True)),
    ("STREAM", None, None),
    ("STREAM", False, None),
    ("STREAM", True, StreamLimits(10_000, 1024 * 1024, timedelta(hours=1))),
    ("STREAM", {}, StreamLimits()),
    ("STREAM", {"entries": 5, "bytes": 1024, "ttl": 60}, StreamLimits(5, 1024, timedelta(minutes=1))),
    ("ORDERED", True, True),
    ("ON_DEAD_LETTER", "continue", "continue"),
    ("DURABILITY", "replica", "replica"),
    ("PARTITIONS", 64, 64),
    ("OUTBOX", True, True),
    ("OUTBOX", {}, True),
    ("OUTBOX", {"KEEP_UNTIL": "published"}, True),
    ("OUTBOX", {"KEEP_UNTIL": "handled"}, "handled"),
    ("PRIORITY_AGEING", 60, timedelta(minutes=1)),
    ("PRIORITY_AGEING", None, None),
    ("FAIR", True, ()),
    ("FAIR", False, None),
    ("FAIR", {"b": 2, "a": 0.5}, (("a", 0.5), ("b", 2.0))),
]


def test_an_option_of_a_queue_is_read():
    found = [(option, value, getattr(queue(**{option: value}), option.lower())) for option, value, _ in READ]
    assert found == READ
    # For limits see tests/core/test_limits.py.
    assert {option for option, *_ in READ} == set(options_of(QueueConfig)) - {"RATE_LIMIT", "CONCURRENCY"}


def test_defaults_are_for_every_queue_that_has_the_option_and_no_value_of_its_own():
    config, problems = read(
        {
            "DEFAULTS": {"MAX_ATTEMPTS": 3, "VISIBILITY_TIMEOUT": 45, "ORDERED": True},
            "QUEUES": {"emails": {}, "reports": {"MAX_ATTEMPTS": 7}, "shared": {"STORE": "rsmq"}},
            "TOPICS": {"orders": {}},
        }
    )
    assert not problems
    found = {name: (each.max_attempts, each.visibility_timeout, each.ordered) for name, each in config.queues.items()}
    theirs = (timedelta(seconds=45), True)
    # RSMQ's format has a VT in place of the visibility timeout, and no order.
    rsmq = (3, RsmqConfig(name="shared").visibility_timeout, False)
    assert found == {"emails": (3, *theirs), "reports": (7, *theirs), "shared": rsmq}
    assert config.topics["orders"].max_attempts == 25


def test_a_default_passes_the_check_of_its_option(subtests):
    for find in [
        lambda project: project,
        lambda project: project.queue("emails"),
        lambda project: project.queue("jobs"),
        lambda project: project.topic("orders"),
    ]:
        with subtests.test(find=find):
            config = find(read({"QUEUES": {"emails": {}, "jobs": {"STORE": "rsmq"}}, "TOPICS": {"orders": {}}})[0])
            # The settings say these in a form of their own.
            options = [option for name, option in options_of(type(config)).items() if name not in OTHER_FORMS]
            assert len(options) >= 5
            for option in options:
                default = getattr(config, option.attribute)
                assert option.read(default) == default


def test_a_queue_in_rsmqs_format_has_options_of_its_own():
    config, problems = read({"QUEUES": {"jobs": {"STORE": "rsmq", "VT": 60, "NAMESPACE": "{r}", "DELAY": 5}}})
    assert problems == []
    jobs = config.queue("jobs")
    assert (jobs.visibility_timeout, jobs.vt, jobs.namespace, jobs.delay) == (timedelta(minutes=1), 60, "{r}", 5)
    assert not {"VISIBILITY_TIMEOUT", "MAX_SIZE", "RESULT_TTL", "RATE_LIMIT", "CONCURRENCY"} & set(
        options_of(RsmqConfig)
    )


def test_a_wrong_option_of_a_queue_in_rsmqs_format_is_named(subtests):
    for option, value in [
        *(("VT", value) for value in (0, -1, 1.5, True, 10_000_000, None, timedelta(seconds=5))),
        *(("DELAY", value) for value in (-1, 0.5, False, 10_000_000, "0")),
        *(("MAXSIZE", value) for value in (0, 1023, 65537, -2, True, "1024")),
        *(("REALTIME", value) for value in (1, "yes", None)),
        *(("NAMESPACE", value) for value in ("", "a b", "x" * 81, 7)),
        *((name, 5) for name in ("VISIBILITY_TIMEOUT", "MAX_SIZE", "RESULT_TTL", "RATE_LIMIT", "CONCURRENCY")),
    ]:
        with subtests.test(option=option):
            problem = one_problem({"QUEUES": {"jobs": {"STORE": "rsmq", option: value}}})
            assert problem.setting == f"MQ_DJANGO[\"QUEUES\"]['jobs']['{option}']"


def test_a_retry_policy_can_be_given_as_a_dict():
    given = {
        "max_attempts": 3,
        "delay": 2,
        "factor": 1,
        "max_delay": timedelta(minutes=5),
        "jitter": 0,
        "bury_on": [ValueError],
    }
    assert queue(RETRY=given).retry == RetryPolicy(
        max_attempts=3,
        delay=timedelta(seconds=2),
        factor=1,
        max_delay=timedelta(minutes=5),
        jitter=0,
        bury_on=(ValueError,),
    )


WRONG_OPTIONS = {
    "BREAKER": [3, "requests.ConnectionError", {"on": "requests.ConnectionError"}, {"share": 2}, {"every": 5}],
    "DURABILITY": ["fsync", True, None],
    "STORE": ["kafka", None],
    "VISIBILITY_TIMEOUT": [0, 0.001, timedelta(days=2), -1, "30", None, float("nan"), float("inf")],
    "RETRY": [
        {"factor": float("inf")},
        {"max_delay": 10**12},
        3,
        {"tries": 3},
        {3: 3},
        {"max_attempts": 0},
        {"delay": -1},
        {"delay": "soon"},
        {"factor": 0.5},
        {"factor": "2"},
        {"jitter": 2},
        {"jitter": float("nan")},
        {"bury_on": ["ValueError"]},
        {"bury_on": ValueError},
    ],
    "MAX_ATTEMPTS": [0, 2.5, True, None],
    "TIMEOUT": [0, "30", 10**9],
    "CONNECTION": ["http://h", 6379],
    "MAX_SIZE": [0, 10**9, "256K"],
    "ON_EXPIRE": ["keep", True],
    "MAX_DEPTH": [0, "many"],
    "RATE_LIMIT": ["fast"],
    "CONCURRENCY": [0],
    "EXTERNAL": ["no"],
    "RESULT_TTL": [-1, timedelta(days=4000), None],
    "HISTORY": [0, True, timedelta(days=4000), {"KEEP": 60, "AGE": 60}],
    "STREAM": [1, "yes", {"entries": 0}, {"bytes": 64 * 1024**2 + 1}, {"ttl": 0}, {"ENTRIES": 5}, {7: 1}],
    "ORDERED": [1],
    "ON_DEAD_LETTER": ["stop"],
    "PARTITIONS": [0, 257],
    "OUTBOX": [1, {"KEEP": "handled"}],
    "FAIR": ["yes", [("a", 1)]],
    "PRIORITY_AGEING": [0, -1, True, "60", 0.001, timedelta(days=2)],
}


def of_emails(**options):
    return {"QUEUES": {"emails": options}}


REPORT = {"queue": "emails", "message": "report", "every": 60, "priority": 5}
WEIGHTS = [{"a": 0}, {"a": "2"}, {"a": True}, {"a": 1001}, {7: 1}, dict.fromkeys(map(str, range(1001)), 1)]
AGE, COUNT = "must be a timedelta or a number of seconds from 0", "must be a whole number from 0, or None"
#: Settings with one problem, and what is said of it.
WRONG = [
    *((of_emails(FAIR=weights), "a dict of up to 1,000 keys and their weights, from 0.001 to") for weights in WEIGHTS),
    (of_emails(ORDERED=True) | {"SCHEDULES": {"nightly": REPORT}}, "ORDERED or FAIR, which priorities would break"),
    (of_emails(ORDERED=True, CONCURRENCY={"key": 2}), "runs at a time, and CONCURRENCY allows 2"),
    (of_emails(ON_DEAD_LETTER="hold"), 'ON_DEAD_LETTER "hold" without ORDERED'),
    (of_emails(ORDERED=True, PRIORITY_AGEING=60), "PRIORITY_AGEING beside ORDERED or FAIR, which priorities would"),
    (of_emails(FAIR=True, PRIORITY_AGEING=60), "PRIORITY_AGEING beside ORDERED or FAIR, which priorities would"),
    (of_emails(STORE="rsmq", PRIORITY_AGEING=60), "['PRIORITY_AGEING'] is not for queues in RSMQ's format"),
    (of_emails(STORE="rsmq", PARTITIONS=2), "['PARTITIONS'] is not for queues in RSMQ's format"),
    (of_emails(STORE="rsmq", OUTBOX=True), "['OUTBOX'] is not for queues in RSMQ's format"),
    (of_emails(HISTORY={}), "['HISTORY']['AGE'] is missing: how long the history is kept"),
    (of_emails(HISTORY={"AGE": 60, "COUNT": 0}), "['COUNT'] must be a whole number from 1, not 0"),
    (of_emails(HISTORY={"AGE": 60, "DATA": "yes"}), "['DATA'] must be True or False, not 'yes'"),
    (of_emails(STREAM={"bytes": 5}), "['STREAM']['bytes'] must be a number of bytes from 1,024 to 67,108,864, not 5"),
    (of_emails(STREAM={"size": 5}), "['STREAM']['size'] is not an option of STREAM: entries, bytes, ttl"),
    (of_emails(OUTBOX={"KEEP_UNTIL": "read"}), "['KEEP_UNTIL'] must be \"published\" or \"handled\", not 'read'"),
    ({"TOPICS": {"orders": {"OUTBOX": {"KEEP_UNTIL": "handled"}}}}, "each group of a topic handles a message for"),
    *((raw, "MQ_DJANGO must be a dict") for raw in (None, [], "redis://localhost", 7)),
    *(({"QUEUES": value}, "['QUEUES'] must be a dict of name: options") for value in (None, ["emails"], "emails", [])),
    *(({"TOPICS": value}, "['TOPICS'] must be a dict of name: options") for value in (None, ["emails"], "emails", [])),
    *(({"QUEUES": {"emails": value}}, "['emails']") for value in (None, [], "fast")),
    *(({name: {}}, f"{name!r}] is not a setting") for name in ("QUEUE", "connection", 7)),
    (of_emails(TTL=1), "['TTL'] is not a setting"),
    (of_emails(KEEP_HANDLED=60), "['KEEP_HANDLED'] is now HISTORY"),
    # Where there is no such option under the new name either.
    ({"TOPICS": {"orders": {"CONSUME": False}}}, "['CONSUME'] is not a setting"),
    ({"OUTBOX": True}, "['OUTBOX'] is not a setting"),
    (of_emails(CONSUME=False), "['CONSUME'] is now EXTERNAL"),
    ({"TOPICS": {"orders": {"EXPIRED": "bury"}}}, "['EXPIRED'] is now ON_EXPIRE"),
    ({"DIRECTORY": "/var/lib/mq"}, "['DIRECTORY'] is now EMBEDDED_DIRECTORY"),
    ({"DEFAULTS": 7}, "['DEFAULTS'] must be a dict of options"),
    ({"DEFAULTS": {"MAX_ATTEMPTS": 0}}, "MQ_DJANGO[\"DEFAULTS\"]['MAX_ATTEMPTS'] must be a whole number from 1"),
    ({"DEFAULTS": {"STORE": "rsmq"}}, "['STORE'] is not for all queues"),
    ({"THRESHOLDS": 7}, "['THRESHOLDS'] must be a dict of options"),
    *(({"THRESHOLDS": {"MAX_AGE": value}}, f"['MAX_AGE'] {AGE}") for value in (-1, "5m")),
    *(({"THRESHOLDS": {"MAX_DEAD": value}}, f"['MAX_DEAD'] {COUNT}") for value in (1.5, True)),
    ({"THRESHOLDS": {"max_dead": 1}}, "['max_dead'] is not a setting"),
]


def test_what_is_wrong_with_settings_is_named(subtests):
    for raw, said in WRONG:
        with subtests.test(raw=raw):
            problem = one_problem(raw)
            assert said in problem.message
            assert ("Use one of: " in problem.hint) == ("is not a setting" in said)


def test_an_option_of_a_queue_among_the_settings_is_told_from_a_wrong_name():
    assert one_problem({"RESULT_TTL": 60}).hint.startswith('It is an option of a queue, or of all in "DEFAULTS". ')


def test_a_wrong_option_of_a_queue_is_named(subtests):
    for option, value in ((option, value) for option, values in WRONG_OPTIONS.items() for value in values):
        with subtests.test(option=option, value=value):
            problem = one_problem({"QUEUES": {"emails": {option: value}}})
            part = f"[{next(iter(value))!r}]" if isinstance(value, dict) else ""
            assert problem.setting == f"MQ_DJANGO[\"QUEUES\"]['emails']['{option}']{part}"
            assert problem.message.startswith(problem.setting)
            assert " must be " in problem.message or " is not an " in problem.message
            assert option in problem.hint


def test_every_argument_of_a_retry_policy_that_is_wrong_is_named():
    _, problems = read({"QUEUES": {"emails": {"RETRY": {"delay": "soon", "factor": 0, "tries": 3, "jitter": 0.1}}}})
    where = "MQ_DJANGO[\"QUEUES\"]['emails']['RETRY']"
    assert sorted(problem.message for problem in problems) == [
        f"{where}['delay'] must be a timedelta or a number of seconds, not 'soon'.",
        f"{where}['factor'] must be a number from 1 to 1000, not 0.",
        f"{where}['tries'] is not an argument of RetryPolicy: max_attempts, delay, factor, max_delay, jitter, bury_on.",
    ]


def test_every_option_of_a_queue_can_be_wrong():
    assert WRONG_OPTIONS.keys() == set(options_of(QueueConfig))


def test_a_wrong_setting_is_named(subtests):
    for option, value in [
        *(("CONNECTION", ""), ("CONNECTION", None), ("CONNECTION", 6379), ("CONNECTION", "http://localhost")),
        *(("CONNECTION", "redis+sentinels://localhost"), ("NAMESPACE", ""), ("NAMESPACE", "a b")),
        *(
            ("NAMESPACE", "a{b}"),
            ("NAMESPACE", "x" * 81),
            ("NAMESPACE", 7),
            ("EMBEDDED_DIRECTORY", 7),
            ("EMBEDDED_DIRECTORY", None),
        ),
        *(("SIGNALS", {"signal": "x"}), ("SIGNALS", ["x"])),
    ]:
        with subtests.test(option=option):
            problem = one_problem({option: value})
            assert problem.setting == f"MQ_DJANGO['{option}']"
            assert option in problem.message
            assert option in problem.hint


def test_what_cannot_name_a_queue_is_named(subtests):
    for name in ["", "a.b", "a b", "a{b}", "ä", "a\n", "x" * 161, 7, None]:
        with subtests.test(name=name):
            problem = one_problem({"QUEUES": {name: {}}})
            assert repr(name) in problem.message
            assert "letters" in problem.hint


def test_the_retention_of_a_topic_is_divided_between_its_partitions():
    config, _ = read({"TOPICS": {"orders": {"PARTITIONS": 3, "RETENTION_COUNT": 10, "RETENTION_BYTES": 2**20}}})
    topic = config.topic("orders")
    assert [(part.retention_count, part.retention_bytes) for part in topic.parts] == [(4, 349526)] * 3
    assert (topic.retention_count, topic.retention_bytes, topic.parts[2].retention) == (10, 2**20, topic.retention)


def test_the_groups_of_a_topic_have_its_partitions():
    config, _ = read({"TOPICS": {"orders": {"PARTITIONS": 3}}})
    group = config.queue("orders:billing")
    assert [part.name for part in group.parts] == ["orders.0:billing", "orders.1:billing", "orders.2:billing"]
    assert [part.public_name for part in group.parts] == ["orders:billing"] * 3
    for topic, part in zip(config.topic("orders").parts, group.parts, strict=True):
        assert config.topic(topic.name) is topic
        assert config.queue(part.name) == part == topic.group("billing")
        assert part.keys.topic.log == topic.keys.log


def test_only_the_name_of_a_partition_names_one(subtests):
    for name in ["payments.3", "payments.1.2", "payments.01", "payments.", "payments.1.", ".1"]:
        with subtests.test(name=name):
            config, _ = read({"QUEUES": {"payments": {"PARTITIONS": 3}}, "TOPICS": {"orders": {"PARTITIONS": 3}}})
            with pytest.raises(UnknownQueue):
                config.queue(name)
            with pytest.raises(UnknownTopic):
                config.topic(name.replace("payments", "orders"))
            with pytest.raises(UnknownTopic):
                config.queue(f"{name.replace('payments', 'orders')}:billing")


def test_all_problems_are_found_at_once():
    _, problems = read({"NAMESPACE": "", "X": 1, "QUEUES": {"a b": {}, "emails": {"MAX_ATTEMPTS": 0, "TIMEOUT": 0}}})
    assert len(problems) == 5


#: Values with a password, as they are written for a server.
SERVERS = (
    "redis://user:secret@localhost/0",
    *("user:secret@localhost:6379", ":secret@localhost", "localhost:6379,password=secret", "redis://h?password=secret"),
)


def test_a_password_is_not_shown_wherever_a_url_is(mq_settings, subtests):
    wrongs = [
        *({"CONNECTION": "http://user:secret@localhost"}, {"CONNECTION": "reds://user:secret@localhost"}),
        *({"CONNECTION": "redis:/user:secret@localhost"}, {"CONNECTION": "http://user:" + "secret" * 100 + "@h"}),
        *({"CONNECTION": url} for url in SERVERS[1:4]),
    ]
    for url in SERVERS:
        wrongs += [
            *({name: url} for name in ("NAMESPACE", "QUEUES", "TOPICS", "SCHEDULES", "THRESHOLDS", "MIDDLEWARE", url)),
            *({"EMBEDDED_DIRECTORY": url}, {"MODULES": url}, {"DISCOVER": url}, {"EMBEDDED_DIRECTORY": [url]}),
            *({"QUEUES": {url: {}}}, {"QUEUES": {url: url}}, {"TOPICS": {url: {}}}, {"SCHEDULES": {url: {}}}),
            *({"QUEUES": {"a": {name: url}}} for name in ("TIMEOUT", "STORE", "OUTBOX", "RETRY", "CONCURRENCY", url)),
            *({"QUEUES": {"emails": {"OUTBOX": value}}} for value in ({url: True}, {"KEEP_UNTIL": url})),
            *({"QUEUES": {"emails": {"RETRY": value}}} for value in ({url: 1}, {"delay": url})),
            *(
                {"SCHEDULES": {"a": {"every": 60, "name": "b", option: url}}}
                for option in ("queue", "cron", "priority", url)
            ),
            {"THRESHOLDS": {url: 1}},
        ]
    for wrong in wrongs:
        with subtests.test(wrong=wrong):
            mq_settings(**wrong)
            said = [f"{error.msg} {error.hint}" for error in [*check_settings(), *check_connection()]]
            assert said
            assert "secret" not in " ".join(said)
            with pytest.raises((ConfigurationError, LookupError)) as caught:
                queues["default"].find("id")
            assert "secret" not in str(caught.value)


def test_a_long_value_is_cut():
    assert len(one_problem({"CONNECTION": ["x" * 10000]}).message) < 300


def test_the_config_is_read_once_until_the_setting_changes(settings):
    settings.MQ_DJANGO = {"NAMESPACE": "one"}
    first = get_config()
    assert get_config() is first
    settings.MQ_DJANGO = {"NAMESPACE": "two"}
    assert get_config().namespace == "two"


def test_a_missing_setting_is_an_empty_one(settings):
    # Django sends no signal for a deletion, and so none for its end.
    settings.MQ_DJANGO = {}
    del settings.MQ_DJANGO
    assert get_config().queue("default").max_attempts == 25


def test_a_wrong_setting_is_an_error_when_it_is_used(settings):
    settings.MQ_DJANGO = {"NAMESPACE": "", "X": 1}
    with pytest.raises(ConfigurationError, match=r"'NAMESPACE'.*'X'"):
        get_config()


def test_a_queue_that_is_not_configured_is_an_error_that_names_the_others():
    config, _ = read({"QUEUES": {"emails": {}, "default": {}}})
    with pytest.raises(UnknownQueue, match="configured: default, emails"):
        config.queue("sms")
    with pytest.raises(UnknownTopic, match=r"No topic 'sms'.*configured: none$"):
        config.topic("sms")
    with pytest.raises(UnknownTopic, match=r"'emails' is a queue$"):
        config.topic("emails")
    with pytest.raises(UnknownQueue, match="none"):
        read({"QUEUES": {}})[0].queue(None)


def test_a_topic_has_its_options_and_its_groups_have_those_of_handling():
    config, problems = read({"TOPICS": {"orders": {"RETENTION": 60, "MAX_ATTEMPTS": 3}}})
    assert problems == []
    orders = config.topic("orders")
    assert (orders.retention, orders.retention_count) == (timedelta(minutes=1), None)
    billing = config.queue("orders:billing")
    assert (billing.name, billing.store, billing.max_attempts) == ("orders:billing", "topic", 3)
    assert billing.keys.dead == "mq:{orders}:g:billing:dead"
    with pytest.raises(UnknownQueue, match=r"'orders' is a topic: use topics\['orders'\], or one of its groups"):
        config.queue("orders")
    with pytest.raises(UnknownTopic):
        config.queue("other:billing")
    with pytest.raises(UnknownQueue):
        config.queue("orders:no group")
    for name in ("no group", "", 5, None):
        with pytest.raises(ConfigurationError, match="A group's name is"):
            orders.group(name)


def test_what_cannot_be_a_topic_is_a_problem(subtests):
    for raw in [
        *({"TOPICS": {"a b": {}}}, {"TOPICS": {"orders": {"RETENTION": 0}}}),
        *({"TOPICS": {"orders": {"RETENTION_COUNT": 0}}}, {"TOPICS": {"orders": {"RETENTION_ALARM": 1.5}}}),
        *({"TOPICS": {"orders": {"MAX_DEPTH": 5}}}, {"TOPICS": {"orders": {"HISTORY": 60}}}),
        {"QUEUES": {"orders": {}}, "TOPICS": {"orders": {}}},
    ]:
        with subtests.test(raw=raw):
            assert one_problem(raw).setting.startswith('MQ_DJANGO["TOPICS"]')


def test_thresholds_are_those_of_the_settings_and_the_usual_ones():
    assert read({})[0].thresholds == Thresholds()
    config, problems = read({"THRESHOLDS": {"MAX_AGE": timedelta(minutes=5), "MAX_DEAD": 7, "MAX_BURIED": None}})
    assert problems == []
    assert config.thresholds == Thresholds(max_age=300, max_dead=7, max_buried=None)


def test_without_time_zone_that_of_the_system_counts(settings, monkeypatch):
    assert conf._system_time_zone().utcoffset(datetime.now()) is not None  # noqa: DTZ005 - as tzinfo takes it
    monkeypatch.setattr(conf, "_system_time_zone", lambda: ZoneInfo("Asia/Tokyo"))
    settings.TIME_ZONE = None
    naive = datetime(1970, 1, 1, 9)  # noqa: DTZ001
    assert aware(naive).timestamp() == 0
    assert problem_sentences.date(0) == "1970-01-01 09:00:00+09:00"
    settings.USE_TZ = False
    assert moment(0) == naive
    pytest.importorskip("croniter")
    _, entry = checked(conf.get_config().queue("default"), "daily", {"message": "x", "cron": "0 3 * * *"})
    assert entry.next_ms(0, conf.default_time_zone()) == timedelta(hours=18) / timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("mail.out", "'mail-out'"), ("plugin.*", "'plugin'"), ("a:b c", "'a-b-c'"), ("é", ""), (5, "")],
)
def test_a_name_that_no_queue_can_have_is_refused_with_one_that_it_can(name, instead):
    (problem,) = read({"QUEUES": {name: {}}})[1]
    assert "is not a valid name of a queue" in problem.message
    assert problem.hint.partition("Write ")[2].partition(":")[0] == instead
