"""The office as an app."""

from django.apps import AppConfig


class OfficeConfig(AppConfig):
    """Configure the office."""

    name = "example_project.office"
    label = "office"
    default_auto_field = "django.db.models.BigAutoField"
