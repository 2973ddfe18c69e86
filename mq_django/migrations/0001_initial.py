"""The admin's model of a queue: permissions and a content type, no table."""

from django.db import migrations, models


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
    ]
