"""Settings from the environment, with the database of a test."""

import json
import os
from importlib import import_module
from importlib.util import find_spec

from tests.consumers.project.settings import CACHES, MQ_DJANGO, SECRET_KEY, SILENCED_SYSTEM_CHECKS, USE_TZ

__all__ = ["CACHES", "DATABASES", "INSTALLED_APPS", "MQ_DJANGO", "SECRET_KEY", "SILENCED_SYSTEM_CHECKS", "USE_TZ"]

INSTALLED_APPS = ["mq_django", "tests.inbox.project"]
DATABASES = {"default": json.loads(os.environ["MQ_TEST_INBOX"])}

if find_spec("pymysql") is not None:
    pymysql = import_module("pymysql")
    # The driver that Django expects has another name, and a newer version.
    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()
