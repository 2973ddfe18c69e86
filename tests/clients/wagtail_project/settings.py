"""A site with Wagtail, whose tasks run on the queues of mq_django."""

from pathlib import Path

BASE_DIR = Path(__file__).parent
SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
MEDIA_ROOT = BASE_DIR / "media"
ROOT_URLCONF = "articles.urls"

INSTALLED_APPS = [
    "articles",
    "mq_django",
    "wagtail.contrib.forms",
    "wagtail.contrib.redirects",
    "wagtail.embeds",
    "wagtail.sites",
    "wagtail.users",
    "wagtail.snippets",
    "wagtail.documents",
    "wagtail.images",
    "wagtail.search",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    "django_tasks",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "development.sqlite3"}}

WAGTAIL_SITE_NAME = "Harbour news"
WAGTAILADMIN_BASE_URL = "http://testserver"
WAGTAILSEARCH_BACKENDS = {"default": {"BACKEND": "wagtail.search.backends.database"}}

# Tests do not use this server: nobody listens there.
MQ_DJANGO = {"CONNECTION": "redis://127.0.0.1:1", "QUEUES": {"default": {"RESULT_TTL": 3600, "MAX_ATTEMPTS": 3}}}
TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend"}}
