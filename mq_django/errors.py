"""Every error that mq_django raises.

MQError
├── ConfigurationError        a setting that cannot be used (also Django's ImproperlyConfigured)
│   ├── MissingDependency     an optional package is needed and not installed
│   └── NoServer              no Redis server is to be found on this machine
├── PublishError              a publish was refused; nothing was written
│   ├── InvalidMessage        data, name, key or header that cannot be sent (also ValueError)
│   │   └── MessageTooLarge   more bytes than the queue takes
│   ├── UnknownQueue          no such queue in MQ_DJANGO["QUEUES"] (also LookupError)
│   │   └── UnknownTopic      no such topic in MQ_DJANGO["TOPICS"]
│   ├── UnknownHandler        no handler of that name is registered (also LookupError)
│   ├── QueueFull             the queue is at its MAX_DEPTH
│   └── AlreadyPublished      a message with this unique key, or id, is there already
├── StoreError                Redis could not do what was asked
│   ├── ConnectionLost        Redis is away or did not answer in time; whether the command ran is not known
│   ├── ConnectionRejected    the server and CONNECTION do not fit: log-in, TLS, database; nothing was sent
│   ├── NotPermitted          the Redis user may not do that
│   ├── RedisOutOfMemory      Redis is at its maxmemory
│   ├── WrongKeyType          a key of ours holds something else
│   ├── ReadOnly              Redis takes no writes: a replica, or its disk is full
│   ├── ServerBusy            Redis runs a script that does not end, and does nothing else
│   ├── WrongNode             the key is on another node of a Redis Cluster
│   └── NotSupported          this store cannot do that
├── InvalidOffset             not a place in a topic's log (also ValueError)
├── InvalidFilter             a filter of messages that cannot be applied (also ValueError)
├── UnknownGroup              the topic has no such group (also LookupError)
├── RSMQError                 RSMQ's own errors, with RSMQ's own names in `name`
│   ├── InvalidFormat         a queue's name or a message's id (also ValueError)
│   ├── InvalidValue          a number that is out of bounds (also ValueError)
│   ├── NoAttributeSupplied   nothing to set
│   ├── MessageNotString      a body that is not text (also TypeError)
│   ├── MessageTooLong        a body over the queue's maxsize
│   ├── QueueNotFound         no such queue in this namespace (also LookupError)
│   └── QueueExists           there is a queue of that name
├── DecodeError               an entry in Redis that is not a message
└── HandlerTimeout            a handler ran longer than its timeout
"""

from django.core.exceptions import ImproperlyConfigured


class MQError(Exception):
    """The base of every error raised by mq_django."""


class ConfigurationError(MQError, ImproperlyConfigured):
    """A setting cannot be used."""


class MissingDependency(ConfigurationError):
    """An optional package is needed and not installed."""


class NoServer(ConfigurationError):
    """No Redis server is to be found on this machine."""


class PublishError(MQError):
    """A publish was refused; nothing was written."""


class InvalidMessage(PublishError, ValueError):
    """The message cannot be sent as it is."""


class MessageTooLarge(InvalidMessage):
    """The message has more bytes than its queue takes."""


class UnknownQueue(PublishError, LookupError):
    """No such queue is configured."""


class InvalidOffset(MQError, ValueError):
    """Not a place in a topic's log."""


class InvalidFilter(MQError, ValueError):
    """A filter of messages cannot be applied."""


class UnknownGroup(MQError, LookupError):
    """The topic has no such group."""


class UnknownTopic(UnknownQueue):
    """No such topic is configured."""


class UnknownHandler(PublishError, LookupError):
    """No handler of that name is registered."""


class QueueFull(PublishError):
    """The queue is at its MAX_DEPTH."""


class AlreadyPublished(PublishError):
    """A message with this unique key is there already; in RSMQ's format, one with this id."""


class StoreError(MQError):
    """Redis could not do what was asked."""


class ConnectionLost(StoreError):
    """Redis is away or did not answer in time; whether the command ran is not known."""


class ConnectionRejected(StoreError):
    """The server and CONNECTION do not fit: log-in, TLS, database, or it is not Redis. Nothing was sent."""


class NotPermitted(StoreError):
    """The Redis user may not do that."""


class RedisOutOfMemory(StoreError):
    """Redis is at its maxmemory and takes no more messages."""


class WrongKeyType(StoreError):
    """A key of ours holds something else."""


class ReadOnly(StoreError):
    """Redis takes no writes: it is a replica, or cannot write to its disk."""


class ServerBusy(StoreError):
    """Redis runs a script that does not end, and does nothing else. The command did not run."""


class WrongNode(StoreError):
    """The key is on another node of a Redis Cluster. The command did not run."""


class NotSupported(StoreError):
    """This store cannot do that."""


class RSMQError(MQError):
    """What RSMQ refuses."""

    #: RSMQ's name for it.
    name = ""


class InvalidFormat(RSMQError, ValueError):
    """A queue or a message cannot be called so."""

    name = "invalidFormat"


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
    """There is no such queue."""

    name = "queueNotFound"


class QueueExists(RSMQError):
    """There is a queue of that name."""

    name = "queueExists"


class DecodeError(MQError):
    """An entry in Redis is not a message."""


class HandlerTimeout(MQError):
    """A handler ran longer than its timeout."""
