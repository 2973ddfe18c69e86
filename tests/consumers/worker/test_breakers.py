"""A breaker opens by what all consumers see, lets probes through, and closes by a ramp; nothing is charged."""

import json

import pytest
from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from mq_django import Ack, Breaker, Bury, Retry, RetryPolicy, handler
from mq_django.conf import get_config
from mq_django.consumers.worker import breakers
from mq_django.core import clock
from mq_django.core.breakers import Results
from mq_django.core.messages import Park
from mq_django.errors import ConfigurationError
from mq_django.inspector import actions, message_lists
from mq_django.inspector.holds import end_hold, hold, holds, open_breaker
from mq_django.inspector.queues import quick_stats
from mq_django.middleware import around_handling
from mq_django.signals import breaker_closed, breaker_opened, breaker_probed, handler_finished, handler_started
from mq_django.stores.base import Settlement
from tests.hearing import hears
from tests.seeding import CONSUMER, opened, publish
from tests.waiting import wait_until
from tests.working import run

pytestmark = pytest.mark.usefixtures("handlers")

FORMS = {
    "stream": {},
    "ordered": {"ORDERED": True},
    "fair": {"FAIR": True},
    "limited": {"CONCURRENCY": {"key": 3}},
    "partitions": {"PARTITIONS": 2},
}


class PartnerDown(Exception):
    """What a partner raises that is down."""


class Partner:
    """What handlers call: it is up or down."""

    def __init__(self):
        self.is_up = False
        self.calls = []
        #: How many more calls succeed while it is up.
        self.left = 1000

    def call(self, message):
        self.calls.append((message.data, message.attempt))
        self.left -= self.is_up
        if not self.is_up or self.left < 0:
            raise PartnerDown("no answer")


@pytest.fixture
def partner():
    return Partner()


@pytest.fixture(params=FORMS)
def queue(request, mq_settings):
    mq_settings(QUEUES={"payments": {"MAX_ATTEMPTS": 3, "RETRY": {"delay": 0}, **FORMS[request.param]}})
    return "payments"


@pytest.fixture
def due(redis_client):
    """Return a function that makes the next probes due."""

    def make_due(queue="payments"):
        for part in get_config().queue(queue).each_part:
            for subject, text in redis_client.hgetall(part.keys.holds).items():
                redis_client.hset(part.keys.holds, subject, json.dumps(json.loads(text) | {"next": 1}))

    return make_due


@pytest.fixture
def probe(due):
    """Return a function that makes the next probe due, and runs what is ready then."""

    def probe(queue="payments"):
        due(queue)
        return run()

    return probe


def depth(queue="payments"):
    return quick_stats(queue).depth


BREAKER = Breaker(on=[PartnerDown], of=10)


def test_it_opens_probes_and_closes(queue, partner, probe):
    handler(queue, "charge", breaker=BREAKER)(partner.call)
    handler(queue, "note")(lambda message: None)
    parts = len(get_config().queue(queue).each_part)
    for number in range(100):
        publish(queue, "charge", number, key=f"c{number % 50}")
    publish(queue, "note", key="n")
    with hears(breaker_opened) as told:
        handled = run()
    assert len(partner.calls) == 5 * parts
    assert [(each["value"], each["failed"], each["of"]) for each in told] == [("charge", 5, 10)] * parts
    assert [each.message.name for each in handled if isinstance(each.outcome, Ack)] == ["note"]
    found = holds(queue)[0]
    assert (found.state, found.kind, found.value, found.failed, found.of) == ("open", "name", "charge", 5, 10)
    assert "no answer" in found.error
    assert run() == []
    before = len(partner.calls)
    for _ in range(4):
        probe(queue)
    assert len(partner.calls) - before == 4 * parts
    assert len({data for data, _ in partner.calls[before:]}) > 1, "the same message is each probe"
    partner.is_up = True
    with hears(breaker_closed, breaker_probed) as told:
        for _ in range(20):
            probe(queue)
    assert sum("succeeded" not in each for each in told) == parts
    assert depth(queue) == 0
    assert holds(queue) == ()
    assert {attempt for _, attempt in partner.calls} == {1}
    assert len({data for data, _ in partner.calls}) == 100


@pytest.fixture
def plain(mq_settings):
    """Return a function that sets the options of the queue."""

    def configure(**options):
        mq_settings(QUEUES={"payments": {"MAX_ATTEMPTS": 3, "RETRY": {"delay": 0}, **options}})

    configure()
    return configure


@around_handling
@sync_and_async_middleware
def passing(handle):
    """A middleware that returns what it is shown, as most do."""
    if iscoroutinefunction(handle):

        async def middleware(handling):
            return await handle(handling)

    else:

        def middleware(handling):
            return handle(handling)

    return middleware


@pytest.mark.parametrize("middleware", [[], [f"{__name__}.passing"]], ids=["bare", "in middleware"])
@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_nothing_is_buried_while_it_is_open(mq_settings, partner, probe, middleware, is_async):
    mq_settings(QUEUES={"payments": {"MAX_ATTEMPTS": 1}}, MIDDLEWARE=middleware)

    async def acall(message):
        partner.call(message)

    handler("payments", "charge", breaker=BREAKER)(acall if is_async else partner.call)
    for number in range(20):
        publish("payments", "charge", number)
    run()
    # As an ordinary failure, before enough have failed.
    assert opened("payments").depths().dead == BREAKER.needed - 1
    for _ in range(3):
        probe()
    assert opened("payments").depths().dead == BREAKER.needed - 1
    assert [each.state for each in holds("payments")] == ["open"]
    partner.is_up = True
    for _ in range(9):
        probe()
    assert depth() == 0


@pytest.mark.parametrize("middleware", [[], [f"{__name__}.passing"]], ids=["bare", "in middleware"])
def test_each_handler_that_has_started_has_finished(mq_settings, partner, middleware):
    mq_settings(QUEUES={"payments": {"MAX_ATTEMPTS": 1}}, MIDDLEWARE=middleware)
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(20):
        publish("payments", "charge", number)
    with hears(handler_started) as started, hears(handler_finished) as finished:
        run()
    assert len(started) == len(partner.calls) == BREAKER.needed
    assert [each["message"] for each in finished] == [each["message"] for each in started]
    error = f"{__name__}.PartnerDown: no answer"
    assert [each["outcome"] for each in finished] == [Retry(error=error)] * BREAKER.needed


def test_what_opened_it_is_not_charged_either(plain, partner, probe):
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(6):
        publish("payments", "charge", number)
    run()
    run()
    (found,) = holds("payments")
    assert found.state == "open"
    rows = message_lists.messages("payments", "parked", limit=100).rows
    assert {row.attempt for row in rows} == {1}


def test_a_failure_before_late_reports_of_others_is_not_charged_either(plain):
    store, subject = opened("payments"), "name:charge"

    def report(**counts):
        (found,) = store.count_results([Results(BREAKER, subject, **counts)])
        return found

    began = clock.now_ms()
    report(failed=1)
    wait_until(lambda: clock.now_ms() > began + 5)
    for _ in range(BREAKER.of):
        # Another consumer has handled this before, and tells it now.
        report(handled=1)
    late = clock.now_ms()
    found = [report(failed=1) for _ in range(BREAKER.needed)]
    assert [each.after for each in found] == [""] * (BREAKER.needed - 1) + ["open"]
    assert began <= found[-1].first_ms < late
    assert found[-1].failed == BREAKER.needed


def test_a_failing_ramp_goes_back_to_probes(plain, partner, probe):
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(40):
        publish("payments", "charge", number)
    run()
    partner.is_up, partner.left = True, 4
    with hears(breaker_probed) as told:
        probe()
    # One, two, and one of four.
    assert [each["succeeded"] for each in told][:4] == [True, True, True, True]
    assert False in [each["succeeded"] for each in told]
    (found,) = holds("payments")
    assert (found.state, found.level) == ("open", 0)
    assert {attempt for _, attempt in partner.calls} == {1}
    partner.left = 1000
    probe()
    assert holds("payments") == ()
    assert depth() == 0


@pytest.mark.parametrize(
    ("by", "goes_on"),
    [("name", {"note", "charge-c2"}), ("key", {"note", "charge-c2"}), ("queue", set())],
)
def test_it_stops_what_it_is_by(plain, partner, by, goes_on):
    plain(BREAKER={"on": [f"{__name__}.PartnerDown"], "of": 4, "by": by})
    seen = set()
    handler("payments", "charge")(partner.call)
    handler("payments", "note")(lambda message: seen.add("note"))
    for number in range(10):
        publish("payments", "charge", number, key="c1")
    run()
    partner.is_up = True
    publish("payments", "note", key="c3")
    publish("payments", "charge", "other", key="c2")
    run()
    if ("other", 1) in partner.calls:
        seen.add("charge-c2")
    assert seen == (goes_on - {"charge-c2"} if by == "name" else goes_on)
    (found,) = holds("payments")
    assert (found.kind, found.value) == {"name": ("name", "charge"), "key": ("key", "c1"), "queue": ("queue", "")}[by]


class TooMany(Exception):
    retry_after = "7"


def failing(kind):
    if kind == "retry":
        return Retry(trips=True, error="the partner sleeps")
    if kind == "header":
        raise TooMany
    if kind == "other":
        raise ValueError("not its kind")
    return Bury("not its kind")


@pytest.mark.parametrize(("kind", "opens"), [("retry", True), ("header", True), ("other", False), ("bury", False)])
def test_what_counts(plain, kind, opens):
    handler("payments", "charge", breaker=BREAKER, retry=RetryPolicy(delay=60))(lambda message: failing(kind))
    for number in range(12):
        publish("payments", "charge", number)
    run()
    assert [each.state for each in holds("payments")] == (["open"] if opens else [])


def test_an_exception_says_after_how_long_to_try_again(plain):
    handler("payments", "charge")(lambda message: failing("header"))
    publish("payments", "charge")
    (handled,) = run()
    assert handled.outcome.delay.total_seconds() == 7


def test_too_few_failures_among_many_results_do_not_open_it(plain):
    def charge(message):
        if message.data % 5 == 0:
            raise PartnerDown

    handler("payments", "charge", breaker=BREAKER, retry=RetryPolicy(delay=3600))(charge)
    for number in range(200):
        publish("payments", "charge", number)
    run()
    assert holds("payments") == ()


def test_coroutines_batches_and_tasks_have_breakers(plain, partner):
    @handler("payments", "async", breaker=BREAKER)
    async def call(message):
        partner.call(message)

    @handler("payments", "batch", breaker=BREAKER, batch=4)
    def calls(messages):
        return [Retry(trips=True) for _ in messages]

    for number in range(20):
        publish("payments", "async", number)
        publish("payments", "batch", number)
    run()
    assert {(each.value, each.state) for each in holds("payments")} == {("async", "open"), ("batch", "open")}
    assert quick_stats("payments").parked == 40


def test_there_are_not_more_breakers_than_each_look_at_them_can_read(plain, partner, redis_client):
    held = {f"key:{number}": json.dumps({"state": "held", "score": f"-{number + 1}"}) for number in range(400)}
    redis_client.hset(get_config().queue("payments").keys.holds, mapping=held)
    handler("payments", "charge", breaker=BREAKER, retry=RetryPolicy(delay=60))(partner.call)
    for number in range(10):
        publish("payments", "charge", number)
    run()
    assert len(partner.calls) == 10
    assert {each.kind for each in holds("payments")} == {"key"}


def test_failures_that_cannot_be_reported_are_retried_as_others(plain, partner, redis_client):
    redis_client.set(get_config().queue("payments").keys.breaker("name:charge"), "another program's")
    handler("payments", "charge", breaker=BREAKER, retry=RetryPolicy(delay=60))(partner.call)
    for number in range(3):
        publish("payments", "charge", number)
    run()
    assert len(partner.calls) == 3
    assert opened("payments").depths().delayed == 3


def test_names_beyond_those_that_are_remembered_have_breakers(plain, partner, monkeypatch):
    monkeypatch.setattr(breakers, "MOST", 0)
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(10):
        publish("payments", "charge", number)
    run()
    assert len(partner.calls) == 5
    assert [each.state for each in holds("payments")] == ["open"]


def test_what_is_handled_of_a_key_counts_however_many_keys_have_failed_before(plain, monkeypatch):
    monkeypatch.setattr(breakers, "MOST", 2)

    @handler("payments", "charge", breaker=Breaker(on=[PartnerDown], of=10, by="key"), retry=RetryPolicy(delay=60))
    def charge(message):
        if message.data % 4 == 0:
            raise PartnerDown

    for number in range(5):
        publish("payments", "charge", 0, key=f"before-{number}")
    for number in range(40):
        publish("payments", "charge", number, key="c1")
    run()
    assert opened("payments").depths().delayed == 5 + 10
    assert holds("payments") == ()


def test_it_is_opened_and_closed_by_hand(plain, partner):
    partner.is_up = True
    handler("payments", "charge")(partner.call)
    for number in range(5):
        publish("payments", "charge", number)
    hold("payments", name="charge", reason="they migrate")
    run()
    assert partner.calls == []
    assert end_hold("payments", name="charge")
    run()
    assert len(partner.calls) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 0},
        {"share": True},
        {"share": 1.1},
        {"of": 0},
        {"of": 501},
        {"within": 0},
        {"probe": "x"},
        {"by": "host"},
        {"on": "requests.ConnectionError"},
        {"on": [3]},
        {"on": ["not a path"]},
        {"on": [BaseException]},
    ],
)
def test_wrong_arguments_are_refused(wrong, mq_settings):
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=rf"Breaker\.{name} must be"):
        Breaker(**wrong)
    mq_settings(QUEUES={"payments": {"BREAKER": wrong}})
    with pytest.raises(ConfigurationError, match=f"BREAKER.*{name}"):
        get_config()


def test_a_path_that_leads_to_no_exception_is_refused():
    for path in ("no_such_module.Error", "json.loads", "json.NoSuchError", "NoSuchError"):
        with pytest.raises(ConfigurationError, match=r"Breaker\.on names"):
            Breaker(on=[path]).classes()
    assert Breaker(on=["ConnectionError", "json.JSONDecodeError"]).classes() == (ConnectionError, json.JSONDecodeError)


def test_a_queue_in_rsmq_format_has_none(mq_settings):
    mq_settings(QUEUES={"old": {"STORE": "rsmq", "BREAKER": {"of": 5}}})
    with pytest.raises(ConfigurationError, match="not for queues in RSMQ's format"):
        get_config()


def test_what_is_parked_after_its_hold_has_ended_becomes_ready(plain, partner, redis_client):
    partner.is_up = True
    handler("payments", "charge")(partner.call)
    for number in range(3):
        publish("payments", "charge", number)
    hold("payments", name="charge")
    hold("payments", name="other")
    run()
    # As if a consumer that did not know yet that it has ended had parked them, or somebody has removed it.
    redis_client.hdel(get_config().queue("payments").keys.holds, "name:charge")
    run()
    assert len(partner.calls) == 3
    assert [each.value for each in holds("payments")] == ["other"]


def test_what_expires_while_it_waits_neither_closes_it_nor_delays_the_next_probe(plain, partner, probe, monkeypatch):
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(30):
        publish("payments", "charge", number, expires=3600)
    run()
    monkeypatch.setattr(clock, "_shift", 3601 * 1_000_000_000)
    publish("payments", "charge", "lasting")
    run()
    with hears(breaker_probed) as told:
        probe()
    assert [each["succeeded"] for each in told] == [False]
    assert partner.calls[-1] == ("lasting", 1)
    assert [each.state for each in holds("payments")] == ["open"]


def test_no_probe_is_let_through_while_the_queue_is_paused(plain, partner, probe):
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(20):
        publish("payments", "charge", number)
    run()
    actions.pause("payments")
    before = opened("payments").depths()
    for _ in range(3):
        probe()
        opened("payments").promote(limit=100)
    assert opened("payments").depths() == before
    actions.resume("payments")
    calls = len(partner.calls)
    probe()
    assert len(partner.calls) == calls + 1


def test_what_a_person_holds_is_no_probe_and_does_not_delay_the_next_one(plain, partner, probe):
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(BREAKER.needed):
        publish("payments", "charge", number, key="free")
    run()
    hold("payments", key="customer", reason="asked us to wait")
    for _ in range(30):
        publish("payments", "charge", "held", key="customer")
    run()
    with hears(breaker_probed) as told:
        for _ in range(3):
            probe()
    assert [each["succeeded"] for each in told] == [False] * 3
    partner.is_up = True
    for _ in range(3):
        probe()
    assert ("held", 1) not in partner.calls
    assert {(each.subject, each.state) for each in holds("payments")} == {("key:customer", "held")}
    assert quick_stats("payments").parked == 30
    end_hold("payments", key="customer")
    run()
    assert partner.calls.count(("held", 1)) == 30


def test_a_failed_probe_that_is_settled_again_is_no_probe_that_has_not_run(plain, partner, due):
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    for number in range(10):
        publish("payments", "charge", number)
    run()
    due()
    store = opened("payments")
    store.promote(limit=100)
    (tried,) = store.take(CONSUMER, count=10)
    again = Settlement(tried, Park("name:charge", 1))
    before = holds("payments")
    assert breakers.Breakers(get_config().queue("payments")).judge(store, [again]) == [again]
    assert holds("payments") == before


@pytest.mark.parametrize("subject", [{"name": "charge"}, {"key": "c1"}, {}], ids=["name", "key", "queue"])
@pytest.mark.parametrize("own", [None, Breaker(on=[PartnerDown], by="key"), Breaker(on=[PartnerDown], by="queue")])
def test_one_that_is_opened_by_hand_closes_when_its_probes_are_handled(plain, partner, probe, own, subject):
    handler("payments", "charge", breaker=own)(partner.call)
    open_breaker("payments", **subject)
    for number in range(8):
        publish("payments", "charge", number, key="c1")
    run()
    assert partner.calls == []
    with hears(breaker_probed) as told:
        for _ in range(3):
            probe()
    assert [each["succeeded"] for each in told] == [False] * 3
    assert [each.state for each in holds("payments")] == ["open"]
    partner.is_up = True
    with hears(breaker_closed) as told:
        for _ in range(4):
            probe()
    assert len(told) == 1
    assert holds("payments") == ()
    assert depth() == 0
    assert len(partner.calls) == 3 + 8
    assert {attempt for _, attempt in partner.calls} == {1}


def test_without_a_breaker_of_its_own_any_failure_of_a_probe_counts(plain, probe):
    handler("payments", "charge")(lambda message: Retry(error="the partner sleeps"))
    open_breaker("payments", name="charge")
    publish("payments", "charge")
    run()
    probe()
    assert [each.state for each in holds("payments")] == ["open"]
    assert quick_stats("payments").parked == 1


def test_probes_that_fail_after_somebody_has_closed_it_do_not_open_it_again(plain, partner, due):
    handler("payments", "charge")(partner.call)
    open_breaker("payments", name="charge")
    publish("payments", "charge")
    run()
    due()
    opened("payments").promote(limit=100)
    assert end_hold("payments", name="charge")
    for _ in range(3):
        run()
    assert holds("payments") == ()
    assert opened("payments").depths().dead == 1


def test_what_another_program_names_as_the_breaker_of_a_probe_is_not_asked(plain, partner, redis_client):
    partner.is_up = True
    handler("payments", "charge", breaker=BREAKER)(partner.call)
    keys = get_config().queue("payments").keys
    redis_client.xadd(keys.ready, {"type": "charge", "mqprobe": "another program's"})
    run()
    assert len(partner.calls) == 1
    assert depth() == 0
