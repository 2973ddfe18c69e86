"""The test project in the clothes of django-unfold."""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as TEST_APPS

INSTALLED_APPS = ["unfold", *TEST_APPS]
if "MQ_DJANGO_TEST" in os.environ:
    MQ_DJANGO = json.loads(os.environ["MQ_DJANGO_TEST"])
