"""The verb `publish` of the command `mq`."""

import argparse

from django.core.management.base import CommandError

from mq_django.core.jsontext import loads
from mq_django.errors import DecodeError
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult
from mq_django.producers import queues


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("name", help="The name of the message.")
    parser.add_argument("data", nargs="?", default="null", help="JSON. Default: null.")
    parser.add_argument("--delay", type=float, help="Seconds.")
    parser.add_argument("--key", help="The key of the message.")
    parser.add_argument("--unique", help="With --delay: replace a waiting message with the same unique key.")


def publish(options: Options, _: Terminal) -> VerbResult:
    """Publish a message."""
    try:
        data = loads(options["data"].encode())
    except DecodeError as error:
        raise CommandError(f"The data is {error}", returncode=2) from error
    message_id = queues[options["queue"]].publish(
        options["name"], data, delay=options["delay"], key=options["key"], unique=options["unique"]
    )
    return VerbResult({"id": message_id}, [message_id])


VERBS = (Verb("publish", "Publish a message.", publish, add_options, has_queue=True),)
