"""The Django app."""

from django.apps import AppConfig
from django.core.checks import register
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from mq_django import checks, triggers
from mq_django.registry import MODULES


class MQDjangoConfig(AppConfig):
    """Find the tasks, handlers and triggers of every installed app, and check the settings."""

    name = "mq_django"
    label = "mq_django"
    verbose_name = _("Message queues")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Find what apps have written for us. Nothing connects, to Redis or to a database."""
        register(checks.check_settings, checks.TAG)
        register(checks.check_connection, checks.TAG)
        register(checks.check_subscribers, checks.TAG)
        register(checks.check_middleware, checks.TAG)
        register(checks.check_deployment, checks.TAG, deploy=True)
        register(triggers.check_triggers, checks.TAG)
        autodiscover_modules(*MODULES)
        triggers.connect_all()
