"""The project of the examples in docs/reference/ and docs/howto/."""

from importlib.util import find_spec

SECRET_KEY = "only for tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *(["django_tasks"] if not find_spec("django.tasks") else []),
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mq_django",
    "shop",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": []}}
MQ_DJANGO = {
    "CONNECTION": "unix:///nowhere/redis.sock",
    "QUEUES": {"default": {}, "emails": {}},
    "TOPICS": {"orders": {}},
}
