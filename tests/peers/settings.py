"""The test project as a consumer process of its own sees it: MQ_DJANGO comes as JSON in the environment."""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as TEST_APPS

INSTALLED_APPS = [*TEST_APPS, "tests.peers"]
MQ_DJANGO = json.loads(os.environ["MQ_DJANGO_TEST"])
