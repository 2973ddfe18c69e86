"""A relay in a process of its own, which is killed in the transaction that deletes rows.

The environment has the settings: MQ_OUTBOX_DATABASE and MQ_OUTBOX_QUEUES, as JSON.
"""

import json
import os
import signal

import django
from django.conf import settings


def die(*_args: object, **_options: object) -> None:
    """End this process as a power failure would."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Publish rows of the database, and die."""
    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "mq_django"],
        DATABASES={"default": json.loads(os.environ["MQ_OUTBOX_DATABASE"])},
        MQ_DJANGO=json.loads(os.environ["MQ_OUTBOX_QUEUES"]),
        USE_TZ=True,
    )
    django.setup()
    # Their modules need the settings.
    from mq_django.outbox import partition_relay  # noqa: PLC0415
    from mq_django.outbox.claims import OutboxTables  # noqa: PLC0415
    from tests.outbox.relays import relay, run  # noqa: PLC0415

    partition_relay.ROWS = 40
    OutboxTables._end_rows = die  # type: ignore[method-assign]
    run(relay("default"))


if __name__ == "__main__":
    main()
