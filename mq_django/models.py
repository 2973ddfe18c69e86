"""The models: of the outbox and the inbox, and one without a table for the pages and permissions of the admin."""

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


class OutboxMessage(models.Model):
    """A message that a transaction has written, and that is to be published to its queue or topic.

    A row is unclaimed (`batch` is NULL), claimed (`batch` is a number from 1), or set aside (`batch` is 0, and `error`
    has the reason). A relay claims rows, publishes them, and deletes them. Only unclaimed rows may be deleted to cancel
    them, and only those that were set aside to discard them.
    """

    #: Rows of one key are published in the order of their ids.
    id = models.BigAutoField(primary_key=True)
    #: The name of the queue or topic; of a partition that of the whole.
    destination = models.CharField(_("destination"), max_length=160)
    #: The number of the partition, from 0; -1 if there are no partitions. It is chosen again if `parts` is out of date.
    part = models.IntegerField(_("partition"), default=-1)
    #: The number of partitions by which `part` was chosen; 1: none.
    parts = models.IntegerField(_("partitions"), default=1)
    #: The number of the claim of its place: see OutboxState.number. NULL: unclaimed. 0: set aside.
    batch = models.BigIntegerField(_("claim"), null=True)
    #: The id of the message, which it keeps in Redis.
    message_id = models.CharField(_("message"), max_length=255)
    #: The name of the message, which selects the handler.
    name = models.CharField(_("name"), max_length=255)
    #: The key of the message; NULL: none.
    key = models.CharField(_("key"), max_length=255, null=True)  # noqa: DJ001 - no key is not the key ""
    #: The publication as JSON: see `mq_django.outbox.rows`.
    body = models.TextField(_("body"))
    #: The number of bytes of `body`.
    size = models.IntegerField(_("bytes"))
    #: When the message is due, in milliseconds since 1970; NULL: as soon as it is published.
    due_ms = models.BigIntegerField(_("due"), null=True)
    #: When publish() was called, in milliseconds since 1970.
    published_ms = models.BigIntegerField(_("published"))
    #: Why the row was set aside; '' if it was not.
    error = models.TextField(_("error"), default="", blank=True)
    #: When it was set aside, in milliseconds since 1970; NULL: it was not.
    failed_ms = models.BigIntegerField(_("set aside"), null=True)

    class Meta:
        app_label = "mq_django"
        db_table = "mq_django_outbox"
        verbose_name = _("outbox message")
        verbose_name_plural = _("outbox messages")
        default_permissions = ()
        indexes = [
            # The rows of a claim, those that were set aside, and the unclaimed ones of a place in their order.
            models.Index(fields=["batch", "destination", "parts", "part", "id"], name="mq_outbox_claims"),
            models.Index(fields=["message_id"], name="mq_outbox_message"),
        ]

    def __str__(self) -> str:
        return f"{self.destination} {self.message_id}"


class OutboxState(models.Model):
    """The claim of rows for one queue or topic, or for one of its partitions.

    There is one row for each destination, number of partitions and partition, since rows were first claimed for it. One
    more for each destination, with 0 `parts`, is a lock: claims wait while rows get another partition.
    """

    id = models.BigAutoField(primary_key=True)
    #: As in OutboxMessage, like `part` and `parts`.
    destination = models.CharField(max_length=160)
    part = models.IntegerField(default=-1)
    parts = models.IntegerField(default=1)
    #: The number of the last claim, from 1; 0: there was none. It only increases.
    number = models.BigIntegerField(default=0)
    #: The token of the open claim; '' if no claim is open.
    token = models.CharField(max_length=32, default="", blank=True)
    #: Why this destination is stopped, such as a copied database; '' if it is not.
    problem = models.TextField(default="", blank=True)
    #: Since when, in milliseconds since 1970; NULL: it is not stopped.
    problem_ms = models.BigIntegerField(null=True)

    class Meta:
        app_label = "mq_django"
        db_table = "mq_django_outbox_state"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["destination", "part", "parts"], name="mq_outbox_state_place"),
        ]

    def __str__(self) -> str:
        return f"{self.destination} {self.part}"


class OutboxIdentity(models.Model):
    """The identity of the outbox of a database: one row, which the first relay writes."""

    #: Always 1.
    id = models.SmallIntegerField(primary_key=True)
    #: Names the marks of this database in Redis.
    uuid = models.UUIDField()

    class Meta:
        app_label = "mq_django"
        db_table = "mq_django_outbox_identity"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.uuid)


class InboxMessage(models.Model):
    """A message whose handler has run with `@exactly_once`. The row is written in the handler's transaction.

    It names the queue and not the partition, and no generation of a group. So a message is the same one after
    repartitioning, after a seek, and when it is published again with its id. Columns for people are in ASCII, whatever
    characters the database accepts.
    """

    #: The SHA-256 in hexadecimal of what identifies the row: see `mq_django.inbox.entries`.
    digest = models.CharField(max_length=64, primary_key=True)
    #: For people: the name of the queue, or of the group as `topic:group`.
    queue = models.CharField(max_length=321)
    #: For people: its first 255 characters.
    message_id = models.CharField(max_length=255)
    #: For people: the name under which the handler is registered: of a message, or the path of a task. '': of all.
    handler = models.CharField(max_length=255, blank=True)
    #: The number of the pass of a group: see InboxPass. 0: the first one, and that of queues.
    number = models.IntegerField(default=0)
    #: How the message was acked, as ASCII JSON: see `mq_django.inbox.entries`. '': without a result.
    outcome = models.TextField(default="", blank=True)
    #: When the row was written, in milliseconds since 1970. The setting INBOX_RETENTION says when it is deleted.
    created_ms = models.BigIntegerField()

    class Meta:
        app_label = "mq_django"
        db_table = "mq_django_inbox"
        default_permissions = ()
        indexes = [models.Index(fields=["created_ms"], name="mq_inbox_created")]

    def __str__(self) -> str:
        return f"{self.queue} {self.message_id}"


class InboxPass(models.Model):
    """A group of a topic that was moved to another position, and how often the effects are to happen again."""

    #: The SHA-256 of the name in hexadecimal: some databases do not distinguish names by case.
    digest = models.CharField(max_length=64, primary_key=True)
    #: For people: the name of the group as `topic:group`.
    queue = models.CharField(max_length=321)
    #: In each pass the effects of a message happen once. A seek or a replay with `repeat=True` raises it.
    number = models.IntegerField(default=0)
    #: When the pass was raised, in milliseconds since 1970; 0: never.
    raised_ms = models.BigIntegerField(default=0)

    class Meta:
        app_label = "mq_django"
        db_table = "mq_django_inbox_pass"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.queue} {self.number}"
