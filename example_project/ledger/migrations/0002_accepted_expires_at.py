from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="accepted",
            name="expires_at",
            field=models.DateTimeField(help_text="From then on it need not be handled.", null=True),
        ),
    ]
