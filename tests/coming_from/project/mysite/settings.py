"""The settings of a new project, as short as they can be. The boxes of a page are added to them."""

from importlib.util import find_spec
from pathlib import Path

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = "only for tests"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *([] if find_spec("django.tasks") or not find_spec("django_tasks") else ["django_tasks"]),
    "django.contrib.contenttypes",
    "django.contrib.auth",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
