"""The project of those who are measured: a database, and the apps of the queue that is installed."""

import json
import os
from importlib.util import find_spec

SECRET_KEY = "only for measuring"
USE_TZ = True
INSTALLED_APPS = ["procrastinate.contrib.django"] if find_spec("procrastinate") else []
DATABASES = {"default": json.loads(os.environ["BENCH_DATABASE"])}
PROCRASTINATE_IMPORT_PATHS = ["benchmarks.in_django.procrastinate"]
