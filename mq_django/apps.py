"""The Django app."""

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.utils.module_loading import autodiscover_modules, import_string
from django.utils.translation import gettext_lazy as _

from mq_django import checks, triggers
from mq_django.conf import get_config_if_valid
from mq_django.discovery import after_imports
from mq_django.errors import ConfigurationError
from mq_django.registry import MODULES
from mq_django.testing import test_state


class MQDjangoConfig(AppConfig):
    """Imports `tasks`, `handlers` and `triggers` of all installed apps, and registers the checks."""

    name = "mq_django"
    label = "mq_django"
    verbose_name = _("Message queues")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the modules of all apps. Nothing connects to Redis or a database."""
        register(checks.check_settings, checks.TAG)
        register(checks.check_connection, checks.TAG)
        register(checks.check_modules, checks.TAG)
        register(checks.check_database_pools, checks.TAG)
        register(checks.check_metrics_views, checks.TAG)
        # Whichever of these runs first imports what declares tasks and handlers.
        for check in checks.OF_DECLARED:
            register(after_imports(check), checks.TAG)
        register(after_imports(checks.check_inbox_tables), Tags.database)
        # Imported now, because the models of apps can be imported only when all of them are loaded.
        register(import_string("mq_django.outbox.insertion.check_outbox"), checks.TAG)
        register(import_string("mq_django.outbox.insertion.check_outbox_tables"), Tags.database)
        register(checks.check_deployment, checks.TAG, deploy=True)
        register(after_imports(triggers.check_triggers), checks.TAG)
        # Always, because a test runner may tell only later that it is one.
        test_state.note_configured()
        try:
            autodiscover_modules(*MODULES)
        except ConfigurationError:
            # Such as a module that uses `queues` when it is imported. `check` starts, and names the wrong setting.
            if get_config_if_valid() is not None:
                raise
        triggers.connect_all()
