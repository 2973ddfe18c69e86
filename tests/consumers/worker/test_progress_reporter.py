"""What running handlers report, while a real consumer runs them."""

from mq_django import get_progress, queues
from mq_django.conf import get_config
from mq_django.consumers.worker.progress import ProgressReporter, RunningTasks
from mq_django.consumers.worker.settler import ReportBook
from mq_django.core.messages import ACK, Delivery, Message
from mq_django.core.running_handler import HandlerRun, Progress, progress, running
from mq_django.transport.connections import open_session
from tests.commands import script_calls
from tests.waiting import wait_until


def test_reports_of_threads_coroutines_and_failed_attempts_are_seen(shared_tree, publish, tmp_path):
    go = tmp_path / "go"
    sent = publish(["report", [3, 10, "cups", str(go)]], ["report", [10, 10, "", ""]])
    coroutine = publish(["report", [1, 2, "", ""]], name="aact")
    failed = publish(["report", [5, 10, "", ""]], ["once", ["raise", "no"]], ["wait", str(go)])
    found = wait_until(lambda: queues["default"].progress(sent), timeout=20)
    assert (found.done, found.total, found.note, found.attempt) == (3, 10, "cups", 1)
    assert wait_until(lambda: queues["default"].progress(coroutine)).done == 1
    assert wait_until(lambda: queues["default"].progress(failed)).done == 5
    go.touch()
    wait_until(lambda: queues["default"].progress(sent).done == 10)
    assert get_progress(sent).fraction == 1.0


class Holding:
    """Holds deliveries, or has lost them."""

    def __init__(self):
        self.is_held = True

    def holds(self, queue, read_at):
        return self.is_held


def reporter_of(book, holding):
    """Return a reporter, in whose process no task runs."""
    return ProgressReporter({0: book}, RunningTasks({}, "me", holding, []), holding, open_session("chores"))


def run_of(book, delivery):
    """Begin to handle a delivery, and return the place for its report."""
    handler_run = HandlerRun(delivery, book.opened)
    running.set(handler_run)
    return handler_run


def run(book, number):
    """Begin to handle a message that reports."""
    delivery = Delivery(Message(f"m{number}", "n", None, "default"), 0, b"%d-0" % number, b"null", read_at=1.0)
    handler_run = run_of(book, delivery)
    progress(number)
    return handler_run


def test_nothing_is_sent_for_handlers_that_do_not_report(mq_settings, redis_client):
    config = get_config().queue("default")
    book = ReportBook(config)
    handler_run = run_of(book, Delivery(Message("m1", "n", None, "default"), 0, b"1-0", b"null"))
    before = redis_client.info("stats")["total_commands_processed"]
    reporter = reporter_of(book, Holding())
    reporter.run_once()
    book.end(handler_run, ACK)
    assert redis_client.info("stats")["total_commands_processed"] == before + 1
    assert (len(book), book.ended) == (0, {})


def test_what_the_consumer_no_longer_holds_is_not_saved(mq_settings):
    book, holding = ReportBook(get_config().queue("default")), Holding()
    reporter = reporter_of(book, holding)
    run(book, 1)
    holding.is_held = False
    reporter.run_once()
    assert queues["default"].progress("m1") is None
    holding.is_held = True
    reporter.run_once()
    assert queues["default"].progress("m1").done == 1


def test_a_batch_is_one_round_trip_and_an_unchanged_report_none(mq_settings, redis_client):
    book = ReportBook(get_config().queue("default"))
    reporter = reporter_of(book, Holding())
    for number in range(20):
        run(book, number)
    reporter.run_once()
    before = script_calls(redis_client)
    for number in range(20):
        book._reports[0, b"%d-0" % number].set_progress(Progress(done=99))
    reporter.run_once()
    reporter.run_once()
    assert script_calls(redis_client) == before + 1
    assert queues["default"].progress("m7").done == 99


def test_close_saves_the_last_report(mq_settings):
    book = ReportBook(get_config().queue("default"))
    reporter = reporter_of(book, Holding())
    reporter.start()
    wait_until(lambda: reporter._sleeping)
    run(book, 1)
    reporter.stop()
    assert reporter.join(60)
    assert queues["default"].progress("m1").done == 1
