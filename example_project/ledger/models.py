"""Two columns of a ledger: messages accepted, and messages handled."""

from django.db import models


class Accepted(models.Model):
    """A message that the shop published, written in the transaction of what it is about."""

    message_id = models.CharField(max_length=64, primary_key=True)
    queue = models.CharField(max_length=160)
    name = models.CharField(max_length=200)
    at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, help_text="From then on it need not be handled.")

    def __str__(self) -> str:
        return f"{self.message_id} {self.queue}/{self.name}"


class Handled(models.Model):
    """A handler that ran to its end, written in the transaction of what it did.

    A message may have several rows: delivery is at least once.
    """

    message_id = models.CharField(max_length=64, db_index=True)
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.message_id} attempt {self.attempt}"
