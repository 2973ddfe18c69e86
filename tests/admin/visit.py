"""Visit every page of the admin as a process of its own, with the settings of the environment; print what came."""

import json
import sys

import django
from django.core.management import call_command
from django.test import Client

BASE = "/admin/mq_django/queue/"


def visit(visits: list[tuple[str, str, dict[str, str]]]) -> list[tuple[int, str]]:
    """Return status and content of each answer, at the end of its redirects."""
    # What deals with models can be imported only once Django is set up.
    from django.contrib.auth.models import User  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("boss", password="x"))
    answers = []
    for method, path, fields in visits:
        response = getattr(client, method)(BASE + path, fields, follow=True)
        content = b"".join(response.streaming_content) if response.streaming else response.content
        answers.append((response.status_code, content.decode()))
    return answers


if __name__ == "__main__":
    django.setup()
    json.dump(visit(json.load(sys.stdin)), sys.stdout)
