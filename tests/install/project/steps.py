"""What a user does: python steps.py publish | pages. Prints what the environment has."""

import sys
from importlib.util import find_spec

import django
import redis
from django.conf import settings

django.setup()

import mq_django  # noqa: E402


def publish() -> None:
    mq_django.queues["emails"].publish("welcome", {"user": "now"})
    mq_django.queues["emails"].publish("welcome", {"user": "later"}, delay=0.2)
    print(mq_django.__file__)
    print(f"{django.__version__} {redis.__version__} {'hiredis' if find_spec('hiredis') else 'none'}")


def pages() -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    for path in ("", "emails/change/"):
        response = client.get(f"/admin/mq_django/queue/{path}")
        assert response.status_code == 200, (path, response.status_code)
        assert "emails" in response.content.decode()


assert settings.configured
{"publish": publish, "pages": pages}[sys.argv[1]]()
