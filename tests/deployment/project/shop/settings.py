"""Settings from the environment, as the recipes set it."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = os.environ["SECRET_KEY"]
ALLOWED_HOSTS = ["*"]
USE_TZ = True
INSTALLED_APPS = ["django.contrib.staticfiles", "mq_django", "shop"]
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "static"
WSGI_APPLICATION = "shop.wsgi.application"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
MQ_DJANGO = {
    "CONNECTION": os.environ.get("REDIS_URL", "redis://127.0.0.1:1/0"),
    "QUEUES": {"default": {}, "emails": {}},
}
