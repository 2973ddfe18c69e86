"""The app."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class MQDjangoConfig(AppConfig):
    """mq_django in INSTALLED_APPS."""

    name = "mq_django"
    label = "mq_django"
    verbose_name = _("Message queues")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Find the handlers, tasks and triggers of every app."""
        autodiscover_modules("tasks", "handlers", "triggers")
