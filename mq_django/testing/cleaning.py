"""Delete what a test has written to its server."""

from mq_django.conf import get_config
from mq_django.transport import test_server
from mq_django.transport.scripts import MOVED_CLOCK

#: The most keys deleted by one command.
BATCH = 500


def clean() -> None:
    """Delete all keys of the queues and topics. It costs nothing if this process has sent nothing since the last call.

    Raises:
        ConnectionLost: the server cannot be reached.
    """
    if test_server.was_used():
        delete_keys()


def delete_keys() -> None:
    """Delete all keys of the queues and topics, whichever process has written them."""
    client = test_server.control_client()
    for pattern in ["*"] if test_server.is_private() else test_server.key_patterns(get_config()):
        keys = [key for key in client.scan_iter(match=pattern, count=1000) if key != MOVED_CLOCK.encode()]
        for start in range(0, len(keys), BATCH):
            client.unlink(*keys[start : start + BATCH])
    test_server.forget_use()
