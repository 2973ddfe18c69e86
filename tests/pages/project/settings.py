"""The project of the examples in docs/."""

from importlib.util import find_spec

from django import VERSION

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
ROOT_URLCONF = "shop.urls"
ADMINS = ["ops@example.com"] if VERSION >= (6, 0) else [("Ops", "ops@example.com")]
if VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
#: "mq" is the alias that pages name for queues.
CACHES = {
    alias: {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"unix:///nowhere/{alias}.sock"}
    for alias in ("default", "mq")
}
TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": []}}
MQ_DJANGO = {
    "CONNECTION": "unix:///nowhere/redis.sock",
    "QUEUES": {"default": {}, "emails": {}},
    "TOPICS": {"orders": {}},
}
