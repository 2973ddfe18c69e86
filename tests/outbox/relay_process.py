"""A relay in a process of its own, which is killed at a point: `python -m tests.outbox.relay_process POINT`.

The environment has the settings: MQ_OUTBOX_DATABASE and MQ_OUTBOX_QUEUES, as JSON. It publishes until it is killed, or
until nothing is left.
"""

import json
import os
import signal
import sys

import django
from django.conf import settings


def die(*_args: object, **_options: object) -> None:
    """End this process as a power failure would."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(point: str) -> None:
    """Publish the rows of the database, and die at a point."""
    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "mq_django"],
        DATABASES={"default": json.loads(os.environ["MQ_OUTBOX_DATABASE"])},
        MQ_DJANGO=json.loads(os.environ["MQ_OUTBOX_QUEUES"]),
        USE_TZ=True,
    )
    django.setup()
    # Their modules need the settings.
    from mq_django.outbox import place_relay  # noqa: PLC0415
    from mq_django.outbox.claims import OutboxTables  # noqa: PLC0415
    from tests.outbox.relays import relay, run  # noqa: PLC0415

    place_relay.ROWS = 40
    if point == "after the claim":
        place_relay.PlaceRelay.resume = die  # type: ignore[method-assign]
    elif point == "after some chunks":
        real, count = place_relay.PlaceRelay._send, iter(range(3))

        def send(self: place_relay.PlaceRelay, *args: object) -> None:
            if next(count) == 2:
                die()
            real(self, *args)  # type: ignore[arg-type]

        place_relay.PlaceRelay._send = send  # type: ignore[method-assign]
    elif point == "before it finishes":
        OutboxTables.finish = die  # type: ignore[method-assign,assignment]
    elif point == "in the transaction that finishes":
        OutboxTables.change = die  # type: ignore[method-assign]
    elif point == "after it has finished":
        real_finish = OutboxTables.finish

        def finish(self: OutboxTables, *args: object, **options: object) -> None:
            real_finish(self, *args, **options)  # type: ignore[arg-type]
            die()

        OutboxTables.finish = finish  # type: ignore[method-assign,assignment]
    run(relay("default"))


if __name__ == "__main__":
    main(sys.argv[1])
