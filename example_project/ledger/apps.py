"""The ledger as an app."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """Configure the ledger."""

    name = "example_project.ledger"
    label = "ledger"
    default_auto_field = "django.db.models.BigAutoField"
