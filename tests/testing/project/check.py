"""A runner of the project's own, which tells late that it is one."""

import sys

import django


def main():
    django.setup()
    from django.core.management import CommandError, call_command
    from django.test.utils import setup_test_environment

    setup_test_environment()
    from shop.handlers import emails

    from mq_django.testing import MQ

    emails.publish("welcome", {}, on_commit=False)
    with MQ():
        try:
            call_command("runconsumer", "--drain")
        except CommandError as error:
            sys.stdout.write(str(error))


if __name__ == "__main__":
    main()
