"""The tables of the inbox: messages that were handled with `@exactly_once`, and the passes of groups."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("mq_django", "0002_outbox"),
    ]

    operations = [
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
    ]
