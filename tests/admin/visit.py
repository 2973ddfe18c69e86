"""Visit every page of the admin as a process of its own, with the settings of the environment; print what came."""

import json
import sys

import django
from django.core.management import call_command
from django.test import Client

BASE = "/admin/mq_django/queue/"


def visit(paths: list[str], entry: str) -> dict[str, str]:
    """Return the pages, and what came of two buttons."""
    # What deals with models can be imported only once Django is set up.
    from django.contrib.auth.models import User  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("boss", password="x"))
    pages = {}
    for path in paths:
        response = client.get(BASE + path)
        pages[path] = f"{response.status_code} {response.content.decode()}"
    redrive = {"action": "redrive", "_selected_action": entry, "confirmed": "yes"}
    for path, fields in (("emails/dead/chosen/", redrive), ("emails/pause/", {"confirmed": "yes"})):
        pages[path] = client.post(BASE + path, fields, follow=True).content.decode()
    return pages


if __name__ == "__main__":
    django.setup()
    json.dump(visit(*json.load(sys.stdin)), sys.stdout)
