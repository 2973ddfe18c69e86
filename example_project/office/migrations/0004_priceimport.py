from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("office", "0003_prices")]

    operations = [
        migrations.CreateModel(
            name="PriceImport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run", models.CharField(max_length=60, unique=True)),
                ("started", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
