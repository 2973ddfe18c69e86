"""Django signals that mq_django sends.

All arguments are keyword arguments; each signal about messages has `queue`, a name. An error of a receiver is logged
and has no other effect. The sender is a class, the same for all queues: filter by `queue`. A signal without receivers
costs nothing. A signal is sent at most once: a process that is killed just after Redis has accepted an outcome sends
none for it. The counters have no such gap.
"""

from collections.abc import Sequence
from typing import Any

from django.dispatch import Signal

from mq_django.core.logs import get_logger
from mq_django.core.texts import is_a
from mq_django.errors import HandlerTimeout

logger = get_logger(__name__)

#: Redis accepted a message, after the commit if the publish waited for one. Sent by the process that publishes, in the
#: thread that sends; for the tick of a schedule by the supervisor that fires it. Not sent for redriven messages.
#:
#: Sender: mq_django.Queue or mq_django.Topic.
#:
#: Arguments: queue (str: a queue or a topic), message_id (str), name (str: the message's), message (mq_django.Message,
#: as it was published). If a unique key keeps an earlier message, message_id is the id of the earlier one, and
#: `message`, with an id of its own, was not written.
message_published = Signal()

#: A message will not be handled: it was cancelled, replaced under its unique key, or deleted by a purge or a background
#: job. Sent after Redis accepted that, by the process that asked for it; if its consumer cancelled it, by the consumer,
#: and for a background job by a supervisor. Not sent for a row of an outbox, which is deleted in your transaction.
#:
#: Sender: mq_django.CancelResult.
#:
#: Arguments: queue (str), message_id (str), error (str: one line, as in the result of a task).
message_cancelled = Signal()

#: A consumer process has loaded the project, and will fetch its first messages next. Sent by that process, in its main
#: thread. A receiver may open what handlers share: nothing is fetched before it returns.
#:
#: Sender: the consumer's class.
#:
#: Arguments: consumer (str: its name), queues (list of str: the queues, and groups of topics as "topic:group").
consumer_started = Signal()

#: A consumer process begins to stop. Handlers are running, and those that end within the grace period are waited for.
#: Sent by that process, in its main thread. A receiver must return at once: until then the process does not stop. Not
#: sent by a process that is killed.
#:
#: Sender: the consumer's class.
#:
#: Arguments: consumer (str: its name), queues (list of str, as for consumer_started).
consumer_stopping = Signal()

#: A handler is about to run. Sent by the consumer process, in the thread that runs the handler; for a coroutine
#: function that is the thread of the event loop.
#:
#: Sender: mq_django.registry.Handler.
#:
#: Arguments: queue (str), message (mq_django.Message).
handler_started = Signal()

#: A handler has ended, and its outcome will be written to Redis next. Sent by the consumer process, in the same thread
#: as handler_started. The outcome of a failure that a breaker counts is a Retry without a delay: whether the message
#: waits, is retried or is buried depends on what all consumers have seen, and is decided after that.
#:
#: Sender: mq_django.registry.Handler.
#:
#: Arguments: queue (str), message (mq_django.Message), outcome (Ack, Retry, Bury or another of
#: mq_django.core.messages), seconds (float: how many seconds the handler ran).
handler_finished = Signal()

#: A message will be retried: its handler failed, or its process died. Sent after Redis accepted that, by the consumer
#: process, in the thread that settles outcomes; for a consumer that died, by a supervisor.
#:
#: Sender: mq_django.registry.Handler.
#:
#: Arguments: queue (str), message_id (str), message (mq_django.Message, as it was at the attempt that failed), error
#: (str: one line), delay (timedelta: until the next attempt).
message_retried = Signal()

#: A message was moved to the dead-letter queue. Sent after Redis accepted that, by the consumer process, in the thread
#: that settles outcomes; for a consumer that died, by a supervisor.
#:
#: Sender: mq_django.registry.Handler.
#:
#: Arguments: queue (str), message_id (str), message (mq_django.Message; None: the entry could not be decoded), error
#: (str: one line), reason (str: attempts, error, undecodable, crashed, expired or uncertain).
message_buried = Signal()

#: A consumer settled a delivery that it no longer held; nothing was changed. Another consumer handles the message. Sent
#: by the consumer process, in the thread that settles outcomes.
#:
#: Sender: the consumer's class that settles.
#:
#: Arguments: queue (str), message_id (str).
delivery_stale = Signal()

#: A breaker has opened: its messages wait. Sent by the consumer process whose report has opened it, in the thread that
#: settles outcomes, once for all consumers. Not sent for one that is opened by hand. In a queue with partitions each
#: partition has breakers of its own, and each sends this, and the signals below, with the name of the queue.
#:
#: Sender: mq_django.Breaker.
#:
#: Arguments: queue (str), kind (str: name, key or queue), value (str: the name or the key, "" of a queue), error (str:
#: the last one), failed (int), of (int: so many of the latest results had failed).
breaker_opened = Signal()

#: A message that an open breaker has let through has ended. Sent like breaker_opened, by the consumer process of the
#: message; messages that end together are one.
#:
#: Sender: mq_django.Breaker.
#:
#: Arguments: queue (str), kind (str), value (str), succeeded (bool), error (str: of a failure).
breaker_probed = Signal()

#: A breaker has closed because its probes were handled: all of its messages are made ready. Sent like breaker_opened.
#: Not sent for one that is closed by hand.
#:
#: Sender: mq_django.Breaker.
#:
#: Arguments: queue (str), kind (str), value (str).
breaker_closed = Signal()

#: A group of a topic is so far behind that it will lose messages to the retention. Sent once, by one supervisor, each
#: time a group falls behind by more than RETENTION_ALARM.
#:
#: Sender: the supervisor's class that trims topics.
#:
#: Arguments: queue (str: the topic), group (str), share (float: how much of the retention the group is behind), lag
#: (int: unread messages. If Redis does not report their number, they are counted up to about 10,000).
retention_alarm = Signal()

#: A queue, or a group of a topic, has a problem: two checks within a minute have found it. All queues are checked every
#: 10 s, with the default thresholds, if there is a receiver when runconsumer starts. Sent by one supervisor, in a
#: thread that does nothing else.
#:
#: Sender: mq_django.inspector.QueueProblem.
#:
#: Arguments: queue (str), problem (mq_django.inspector.QueueProblem).
problem_began = Signal()

#: A problem for which problem_began was sent has not been found for a minute. Sent like problem_began.
#:
#: Sender: mq_django.inspector.QueueProblem.
#:
#: Arguments: queue (str), problem (mq_django.inspector.QueueProblem, as it was found last), lasted (timedelta: from
#: the first check that found it to the last one).
problem_ended = Signal()


def send_signal(signal: Signal, sender: type, **arguments: Any) -> None:
    """Send a signal. An exception of a receiver is logged, and also an exception of the logging.

    Only a timeout that interrupts a receiver is raised: it is that of the running handler.
    """
    if not signal.receivers:
        return
    responses: Sequence[tuple[Any, Any]] = ()
    try:
        responses = signal.send_robust(sender, **arguments)
    except HandlerTimeout:
        raise
    except (Exception, SystemExit):
        logger.exception("A receiver of a signal failed")
    for _receiver, response in responses:
        if is_a(response, HandlerTimeout):
            raise response
