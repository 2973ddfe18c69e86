"""The shop as an app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Configure the shop."""

    name = "example_project.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
