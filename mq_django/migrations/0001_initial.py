"""The permissions of the admin, and the tables of the outbox and the inbox."""

from typing import Any

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

#: Columns with names and ids, which may differ in case only, and with data: the length, 0 of a text, and whether NULL.
EXACT = {
    "mq_django_outbox": [
        ("destination", 160, "NOT NULL"),
        ("message_id", 255, "NOT NULL"),
        ("name", 255, "NOT NULL"),
        ("key", 255, "NULL"),
        ("body", 0, "NOT NULL"),
    ],
    "mq_django_outbox_state": [("destination", 160, "NOT NULL")],
}


def compare_exactly(_apps: Any, editor: BaseDatabaseSchemaEditor) -> None:
    """Let MySQL and MariaDB compare texts exactly, and accept all characters, whatever the database's defaults are."""
    if editor.connection.vendor != "mysql":
        return
    for table, columns in EXACT.items():
        for name, length, null in columns:
            kind = f"varchar({length})" if length else "longtext"
            exact = f"{kind} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin {null}"
            editor.execute(f"ALTER TABLE `{table}` MODIFY `{name}` {exact}")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Queue",
            fields=[
                (
                    "name",
                    models.CharField(max_length=160, primary_key=True, serialize=False, verbose_name="name"),
                ),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "permissions": [
                    ("view_message_data", "Can view the data of messages"),
                    ("operate_queue", "Can operate queues"),
                    ("purge_queue", "Can purge queues"),
                ],
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="OutboxIdentity",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("uuid", models.UUIDField()),
            ],
            options={
                "db_table": "mq_django_outbox_identity",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("destination", models.CharField(max_length=160, verbose_name="destination")),
                ("part", models.IntegerField(default=-1, verbose_name="partition")),
                ("parts", models.IntegerField(default=1, verbose_name="partitions")),
                ("batch", models.BigIntegerField(null=True, verbose_name="claim")),
                ("message_id", models.CharField(max_length=255, verbose_name="message")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                ("key", models.CharField(max_length=255, null=True, verbose_name="key")),
                ("body", models.TextField(verbose_name="body")),
                ("size", models.IntegerField(verbose_name="bytes")),
                ("due_ms", models.BigIntegerField(null=True, verbose_name="due")),
                ("published_ms", models.BigIntegerField(verbose_name="published")),
                ("error", models.TextField(blank=True, default="", verbose_name="error")),
                ("failed_ms", models.BigIntegerField(null=True, verbose_name="set aside")),
            ],
            options={
                "verbose_name": "outbox message",
                "verbose_name_plural": "outbox messages",
                "db_table": "mq_django_outbox",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["batch", "destination", "parts", "part", "id"], name="mq_outbox_claims"),
                    models.Index(fields=["message_id"], name="mq_outbox_message"),
                ],
            },
        ),
        migrations.CreateModel(
            name="OutboxState",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("destination", models.CharField(max_length=160)),
                ("part", models.IntegerField(default=-1)),
                ("parts", models.IntegerField(default=1)),
                ("number", models.BigIntegerField(default=0)),
                ("token", models.CharField(blank=True, default="", max_length=32)),
                ("problem", models.TextField(blank=True, default="")),
                ("problem_ms", models.BigIntegerField(null=True)),
            ],
            options={
                "db_table": "mq_django_outbox_state",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("destination", "part", "parts"), name="mq_outbox_state_place")
                ],
            },
        ),
        migrations.CreateModel(
            name="InboxPass",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("queue", models.CharField(max_length=321)),
                ("number", models.IntegerField(default=0)),
                ("raised_ms", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "mq_django_inbox_pass",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="InboxMessage",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("queue", models.CharField(max_length=321)),
                ("message_id", models.CharField(max_length=255)),
                ("handler", models.CharField(blank=True, max_length=255)),
                ("number", models.IntegerField(default=0)),
                ("outcome", models.TextField(blank=True, default="")),
                ("created_ms", models.BigIntegerField()),
            ],
            options={
                "db_table": "mq_django_inbox",
                "default_permissions": (),
                "indexes": [models.Index(fields=["created_ms"], name="mq_inbox_created")],
            },
        ),
        migrations.RunPython(compare_exactly, migrations.RunPython.noop, atomic=False),
    ]
