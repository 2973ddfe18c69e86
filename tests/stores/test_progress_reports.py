"""What handlers report, in Redis: the latest run of a message has its key."""

import threading

import pytest

from mq_django.conf import get_config
from mq_django.core.messages import Delivery, Message
from mq_django.core.running_handler import Progress, Report
from mq_django.errors import WrongKeyType
from mq_django.stores import results
from mq_django.stores.results import ENDED_MS, KEPT_MS, begin, ended_command, read_progress_in, save
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Transport


@pytest.fixture
def config(mq_settings):
    return get_config().queue("default")


@pytest.fixture
def transport(config):
    return open_transport("consume")


def report_of(config, done=None, message_id="m1", data=None, published_ms=1, **more):
    message = Message(message_id, "n", data, "default", published_ms=published_ms)
    found = Report(
        delivery=Delivery(message, 0, b"1-0", b"null"),
        config=config,
        stopping=threading.Event(),
        **more,
    )
    if done is not None:
        found.set_progress(Progress(done=done, total=10))
    return found


def done(config, message_id="m1"):
    found = read_progress_in([config], message_id)
    return None if found is None else found.done


def test_a_report_is_saved_and_kept_for_a_week(config, transport, redis_client):
    report = report_of(config, 3)
    save(transport, config, [report])
    assert done(config) == 3
    assert not report.changed
    assert KEPT_MS - 60_000 < redis_client.pttl(config.keys.progress("m1")) <= KEPT_MS


def test_many_reports_are_saved_in_batches(config, transport, monkeypatch):
    monkeypatch.setattr(results, "REPORTS_AT_ONCE", 3)
    reports = [report_of(config, number, f"m{number}") for number in range(8)]
    save(transport, config, reports)
    assert [done(config, f"m{number}") for number in range(8)] == list(range(8))


def test_a_later_run_replaces_an_earlier_one_which_saves_nothing_more(config, transport):
    stale, later = report_of(config, 5), report_of(config, 1)
    save(transport, config, [stale])
    save(transport, config, [later])
    stale.set_progress(Progress(done=9))
    save(transport, config, [stale])
    assert done(config) == 1
    assert stale.lost
    transport.pipeline([ended_command(config, stale, True, False)])
    assert done(config) == 1


def test_a_later_run_begins_at_the_position_of_an_earlier_one(config, transport):
    first = report_of(config)
    assert begin(transport, config, first) == {}
    first.set_position("prices", "17")
    save(transport, config, [first])
    second = report_of(config)
    assert begin(transport, config, second) == {"prices": "17"}
    first.set_position("prices", "99")
    save(transport, config, [first])
    assert begin(transport, config, report_of(config)) == {"prices": "17"}


def test_a_message_with_other_data_begins_anew(config, transport):
    first = report_of(config, data={"list": 7})
    begin(transport, config, first)
    first.set_position("prices", "17")
    save(transport, config, [first])
    assert begin(transport, config, report_of(config, data={"list": 7})) == {"prices": "17"}
    assert begin(transport, config, report_of(config, data={"list": 8})) == {}
    assert begin(transport, config, report_of(config, data={"list": 7})) == {}


def test_a_message_that_was_published_later_under_the_same_id_begins_anew(config, transport):
    first = report_of(config)
    begin(transport, config, first)
    first.set_position("prices", "17")
    save(transport, config, [first])
    assert begin(transport, config, report_of(config)) == {"prices": "17"}
    assert begin(transport, config, report_of(config, published_ms=2)) == {}


def test_the_end_of_a_handled_message_deletes_its_position_and_keeps_its_progress_for_an_hour(
    config, transport, redis_client
):
    report = report_of(config, 10)
    report.set_position("prices", "17")
    save(transport, config, [report])
    transport.pipeline([ended_command(config, report, True, False)])
    assert done(config) == 10
    assert redis_client.hkeys(config.keys.progress("m1")) == [b"run", b"progress"]
    assert 0 < redis_client.pttl(config.keys.progress("m1")) <= ENDED_MS


def test_after_a_rollback_the_position_is_forgotten(config, transport):
    report = report_of(config, 1)
    begin(transport, config, report)
    report.set_position("prices", "17")
    save(transport, config, [report])
    transport.pipeline([ended_command(config, report, False, True)])
    assert begin(transport, config, report_of(config)) == {}


def test_a_key_of_another_type_is_left_alone(config, transport, redis_client):
    redis_client.set(config.keys.progress("m1"), "foreign")
    fine = report_of(config, 2, "m2")
    save(transport, config, [report_of(config, 1), fine])
    assert (done(config), done(config, "m2")) == (None, 2)
    with pytest.raises(WrongKeyType):
        begin(transport, config, report_of(config))
    assert redis_client.get(config.keys.progress("m1")) == b"foreign"


def test_positions_that_another_program_has_written_are_none(config, transport, redis_client, subtests, forget):
    for text in (b"", b"{", b"[]", b'"x"', b"\xff", b"x" * 70_000):
        with subtests.test(text=text):
            forget()
            begin(transport, config, report_of(config))
            redis_client.hset(config.keys.progress("m1"), mapping={"positions": text, "run": "x"})
            assert begin(transport, config, report_of(config)) == {}


def test_positions_that_are_no_text_are_left_out(config, transport, redis_client):
    begin(transport, config, report_of(config))
    redis_client.hset(config.keys.progress("m1"), "positions", '{"a":7,"b":"8","c":"' + "x" * 501 + '"}')
    assert begin(transport, config, report_of(config)) == {"b": "8"}


def test_a_very_long_progress_is_not_read(config, redis_client):
    redis_client.hset(config.keys.progress("m1"), "progress", b'{"done":1,"note":"' + b"x" * 9000 + b'"}')
    assert done(config) is None


def test_a_failed_save_is_tried_again(config):
    report = report_of(config, 1)

    class Broken(Transport):
        def pipeline(self, commands):
            raise ConnectionError

    with pytest.raises(ConnectionError):
        save(Broken(), config, [report])
    assert report.changed
