"""Rows that handlers walk over."""

from django.db import models


class Row(models.Model):
    """A row."""

    id = models.BigAutoField(primary_key=True)

    class Meta:
        app_label = "project"

    def __str__(self) -> str:
        return str(self.pk)
