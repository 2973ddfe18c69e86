"""Models without tables, for the pages and permissions of the admin."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Queue(models.Model):
    """A queue in `settings.MQ_DJANGO`, for the admin's index, log and permissions. It has no table."""

    name = models.CharField(_("name"), max_length=160, primary_key=True)

    class Meta:
        managed = False
        app_label = "mq_django"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        default_permissions = ("view",)
        permissions = [
            ("view_message_data", "Can view the data of messages"),
            ("operate_queue", "Can operate queues"),
            ("purge_queue", "Can purge queues"),
        ]

    def __str__(self) -> str:
        return self.name
