"""RSMQ in Python: the same queues and operations as npm's `rsmq`, PyRSMQ and other clients.

    from mq_django.rsmq import RSMQ

    rsmq = RSMQ()
    rsmq.create_queue("jobs", vt=60)
    rsmq.send("jobs", "hello")
    received = rsmq.receive("jobs")

For messages that Django handles, configure a queue with `"STORE": "rsmq"` instead.
"""

from mq_django.stores.rsmq_queues import Attributes, Received, RsmqQueues
from mq_django.transport.connections import open_transport

__all__ = ["RSMQ", "Attributes", "Received"]


class RSMQ(RsmqQueues):
    """The RSMQ queues of a namespace, on the Redis of `MQ_DJANGO["CONNECTION"]` or another one.

    All methods raise StoreError when Redis cannot be reached or refuses the command, MissingParameter for a name that
    is None or empty, and InvalidFormat for a name that no queue can have. The subclasses of RSMQError have RSMQ's own
    name of the error in `name`, and their text begins with RSMQ's own.

    Seconds and sizes may be text, as in `vt="5"`, and fractions are cut off, as npm's `rsmq` does.

    Args:
        namespace: the prefix of all keys; the option `ns` of other clients.
        realtime: each send publishes the number of messages on RSMQ's channel, like the same option of npm's `rsmq`.
        connection: the server, if it is not that of the project: a URL, or a django-redis alias of `CACHES`.
    """

    def __init__(self, namespace: str = "rsmq", *, realtime: bool = False, connection: str = "") -> None:
        super().__init__(namespace, open_transport("produce", connection), realtime=realtime)
