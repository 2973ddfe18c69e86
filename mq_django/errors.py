"""All errors that mq_django raises.

MQError
├── ConfigurationError        a setting that cannot be used (also Django's ImproperlyConfigured)
│   ├── MissingDependency     an optional package is needed and not installed
│   ├── NoServer              no Redis server was found on this machine
│   └── NoOutbox              a database has no tables of the outbox, or is read-only
├── PublishError              a publish was refused; nothing was written
│   ├── InvalidMessage        data, a name or an option that cannot be sent, also in a task's using() (also ValueError)
│   │   ├── MessageTooLarge   more bytes than the queue accepts
│   │   └── OutboxRequired    a crash would lose what a handler with @exactly_once does here
│   ├── InvalidArguments      arguments that a task's function does not take, or that are not JSON (also TypeError)
│   ├── UnknownQueue          no such queue in MQ_DJANGO["QUEUES"] (also LookupError)
│   │   └── UnknownTopic      no such topic in MQ_DJANGO["TOPICS"]
│   ├── UnknownHandler        no handler with this name is registered (also LookupError)
│   ├── QueueFull             the queue is at its MAX_DEPTH
│   ├── QueueClosed           a queue or topic has another number of partitions, or it is being changed
│   └── AlreadyPublished      a message with this unique key, or id, exists already
├── StoreError                Redis could not execute a command
│   ├── ConnectionLost        Redis cannot be reached or did not answer in time; the command may have been executed
│   ├── ConnectionRejected    the server does not accept CONNECTION: log-in, TLS, database; nothing was sent
│   ├── NotPermitted          the Redis user may not do that
│   ├── RedisOutOfMemory      Redis is at its maxmemory
│   ├── WrongKeyType          a key has another type than expected
│   ├── ReadOnly              Redis accepts no writes: a replica, or its disk is full
│   ├── ServerBusy            Redis is running a script that does not end, and accepts no other command
│   ├── WrongNode             the key is on another node of a Redis Cluster
│   ├── NotReplicated         the master has the messages, and no replica has confirmed them in time
│   └── NotSupported          the queue or topic does not support that
├── WorkflowError             a workflow cannot do what is asked for
│   ├── InvalidWorkflow       a definition that cannot run; nothing was written (also ValueError)
│   ├── UnknownRun            there is no such run (also LookupError)
│   └── MissingValue          a step's argument has no value any more
├── ScheduleError             a schedule could not be created or changed; nothing was written
│   ├── InvalidSchedule       an option that no schedule can have (also ValueError)
│   ├── UnknownSchedule       the queue has no such schedule (also LookupError)
│   ├── ScheduleExists        the queue has a schedule of this name
│   ├── ScheduleInCode        it is in code or settings, where it has to be changed
│   └── ScheduleChanged       somebody else has changed it
├── InvalidOffset             not a position in a topic's log (also ValueError)
├── InvalidFilter             a filter of messages that cannot be applied (also ValueError)
├── UnknownGroup              the topic has no such group (also LookupError)
├── RSMQError                 RSMQ's own errors, with RSMQ's own names in `name`
│   ├── InvalidFormat         a queue's name or a message's id (also ValueError)
│   │   └── MissingParameter  a queue's name or a message's id is missing
│   ├── InvalidValue          a number that is out of bounds (also ValueError)
│   ├── NoAttributeSupplied   no attribute to set was given
│   ├── MessageNotString      a body that is not text (also TypeError)
│   ├── MessageTooLong        a body over the queue's maxsize
│   ├── QueueNotFound         no such queue in this namespace (also LookupError)
│   └── QueueExists           a queue with this name exists already
├── CannotWait                waiting for a result could only time out, or is impossible here; nothing was waited for
│   └── InvalidWait           a timeout or a result that cannot be (also ValueError)
├── StreamNotFound            a task has ended, and there is no stream of it (also LookupError)
├── WaitTimeout               results have not ended within the timeout; `missing` has their ids (also TimeoutError)
├── Cancelled                 a task was cancelled; only its result names this
├── DecodeError               an entry in Redis that is not a message
├── MessageExpired            a message was not handled before it expired: the error of its task or dead letter
├── HandlerTimeout            a handler ran longer than its timeout
├── InvalidOutcomes           a handler of batches has returned something else than outcomes (also TypeError)
├── NotInHandler              progress(), stream() or resumable() was called where no handler runs
├── InvalidProgress           progress() cannot report that (also ValueError)
├── InvalidChunk              stream() cannot send that (also ValueError)
├── NotResumable              resumable() cannot iterate over that queryset (also ValueError)
└── TestKitError              mq_django.testing cannot do what a test asks for
    └── EndlessRun            one message after another became ready: handlers publish endlessly

BaseException: they end a running handler, which must not take them for errors
├── HandlerCancelled          its message was cancelled
└── Interrupted               its process stops, between two items of resumable()
"""

from django.core.exceptions import ImproperlyConfigured


class MQError(Exception):
    """The base of every error raised by mq_django."""


class ConfigurationError(MQError, ImproperlyConfigured):
    """A setting cannot be used."""


class MissingDependency(ConfigurationError):
    """An optional package is needed and not installed."""


class NoServer(ConfigurationError):
    """No Redis server was found on this machine."""


class NoOutbox(ConfigurationError):
    """A database has no tables of the outbox, because `migrate` has not run there; or it is read-only."""


class PublishError(MQError):
    """A publish was refused; nothing was written."""


class InvalidMessage(PublishError, ValueError):
    """The message cannot be sent as it is."""


class MessageTooLarge(InvalidMessage):
    """The message has more bytes than its queue accepts."""


class OutboxRequired(InvalidMessage):
    """A crash would lose what a handler with `@exactly_once` does here, because it is not in its transaction."""


class InvalidArguments(PublishError, TypeError):
    """A task's function or a method cannot be called with these arguments, or JSON cannot hold them."""


class UnknownQueue(PublishError, LookupError):
    """No such queue is configured."""


class ScheduleError(MQError):
    """A schedule could not be created or changed; nothing was written."""


class InvalidSchedule(ScheduleError, ValueError):
    """No schedule can have these options."""


class UnknownSchedule(ScheduleError, LookupError):
    """The queue has no such schedule."""


class ScheduleExists(ScheduleError):
    """The queue has a schedule of this name."""


class ScheduleInCode(ScheduleError):
    """The schedule is defined in code or settings, and has to be changed there."""


class ScheduleChanged(ScheduleError):
    """Somebody else has changed the schedule since it was read."""


class WorkflowError(MQError):
    """A workflow cannot do what is asked for."""


class InvalidWorkflow(WorkflowError, ValueError):
    """A definition that cannot run. Nothing was written."""


class UnknownRun(WorkflowError, LookupError):
    """There is no such run: it has ended a week ago, waits for a commit, or was rolled back."""


class MissingValue(WorkflowError):
    """The value of an earlier step, which is an argument of this one, does not exist any more."""


class InvalidOffset(MQError, ValueError):
    """Not a position in a topic's log."""


class InvalidFilter(MQError, ValueError):
    """A filter of messages cannot be applied."""


class UnknownGroup(MQError, LookupError):
    """The topic has no such group."""


class UnknownTopic(UnknownQueue):
    """No such topic is configured."""


class UnknownHandler(PublishError, LookupError):
    """No handler with this name is registered."""


class QueueFull(PublishError):
    """The queue is at its MAX_DEPTH."""


class QueueClosed(PublishError):
    """A queue or topic has another number of partitions than the settings say, or it is being changed."""


class AlreadyPublished(PublishError):
    """A message with this unique key exists already; in RSMQ's format, one with this id."""


class StoreError(MQError):
    """Redis could not execute a command."""

    was_sent = True  #: False: nothing was executed, because no node could be reached or none could execute it.


class ConnectionLost(StoreError):
    """Redis cannot be reached or did not answer in time. The command may have been executed."""


class ConnectionRejected(StoreError):
    """The server does not accept CONNECTION: log-in, TLS, database, or it is not Redis. Nothing was sent."""


class NotPermitted(StoreError):
    """The Redis user may not do that."""


class RedisOutOfMemory(StoreError):
    """Redis is at its maxmemory and accepts no more messages."""


class WrongKeyType(StoreError):
    """A key has another type than expected."""


class ReadOnly(StoreError):
    """Redis accepts no writes: it is a replica, or cannot write to its disk."""


class ServerBusy(StoreError):
    """Redis runs a script that does not end, and does nothing else. The command did not run."""


class WrongNode(StoreError):
    """The key is on another node of a Redis Cluster, and CONNECTION names one server. The command did not run."""


class NotReplicated(StoreError):
    """The master has accepted the messages, and no replica has confirmed them in time: a failover may lose them."""

    message_ids: tuple[str, ...] = ()


class NotSupported(StoreError):
    """The queue or topic does not support that."""


class RSMQError(MQError):
    """The base of RSMQ's own errors."""

    name = ""  #: RSMQ's name of the error.


class InvalidFormat(RSMQError, ValueError):
    """The name of a queue or the id of a message is not valid."""

    name = "invalidFormat"


class MissingParameter(InvalidFormat):
    """The name of a queue or the id of a message is missing or empty."""

    name = "missingParameter"


class InvalidValue(RSMQError, ValueError):
    """A number is out of bounds."""

    name = "invalidValue"


class NoAttributeSupplied(RSMQError):
    """No attribute was supplied."""

    name = "noAttributeSupplied"


class MessageNotString(RSMQError, TypeError):
    """The message must be a string."""

    name = "messageNotString"


class MessageTooLong(RSMQError):
    """The message is longer than the queue's maxsize."""

    name = "messageTooLong"


class QueueNotFound(RSMQError, LookupError):
    """The queue does not exist."""

    name = "queueNotFound"


class QueueExists(RSMQError):
    """A queue with this name exists already."""

    name = "queueExists"


class CannotWait(MQError):
    """Waiting for a result could only time out, or is impossible here. Nothing was waited for."""


class InvalidWait(CannotWait, ValueError):
    """A timeout or a result that cannot be. Nothing was waited for."""


class StreamNotFound(MQError, LookupError):
    """A task has ended, and there is no stream of it: it streamed nothing, or that was kept long enough."""

    #: How it has ended: "handled" or "buried".
    outcome = ""


class WaitTimeout(MQError, TimeoutError):
    """Results have not ended within the timeout. Their tasks go on."""

    missing: list[str] | tuple[str, ...] = ()  #: The ids of these results.


class Cancelled(MQError):
    """A task was cancelled before it ran, or while it ran. Only its result names this error."""


class DecodeError(MQError):
    """An entry in Redis is not a message."""


class MessageExpired(MQError):
    """A message was not handled before its `expires`. No code raises it: it is the error of a task or dead letter."""


class HandlerTimeout(MQError):
    """A handler ran longer than its timeout."""


class InvalidOutcomes(MQError, TypeError):
    """A handler has returned what is no outcome: something that has not run, or of a batch not one for each message."""


class NotInHandler(MQError):
    """`progress()`, `stream()` or `resumable()` was called where no handler runs."""


class InvalidProgress(MQError, ValueError):
    """`progress()` cannot report these values."""


class InvalidChunk(MQError, ValueError):
    """`stream()` cannot send this: it is not text, bytes or JSON, or too large."""


class NotResumable(MQError, ValueError):
    """`resumable()` cannot iterate over this queryset."""


class TestKitError(MQError):
    """`mq_django.testing` cannot do what a test asks for."""

    __test__ = False  # pytest would collect a class of this name


class EndlessRun(TestKitError):
    """Handlers publish endlessly: more messages became ready than one run of a test may handle."""


# They end a running handler, and are no errors.


class HandlerCancelled(BaseException):
    """Raised in a running handler that is a function, when its message is cancelled.

    It is no Exception, so that `except Exception` does not keep it. In coroutine functions it is
    `asyncio.CancelledError` instead.
    """


class Interrupted(BaseException):
    """Ends a handler between two items of `resumable()`, because its process stops.

    It is no Exception, so that a handler that catches those does not go on.
    """
