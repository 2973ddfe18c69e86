"""The project of the tests' own processes: MQ_DJANGO comes as JSON in the environment."""

import json
import os

from tests.settings import *  # noqa: F403

# Only our handlers: those of the other apps name queues that these tests do not have.
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "mq_django", "tests.peers"]
ROOT_URLCONF = ""
MQ_DJANGO = json.loads(os.environ["MQ_DJANGO_TEST"])
