from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("office", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Report",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(unique=True)),
                ("orders", models.PositiveIntegerField()),
                ("total", models.DecimalField(decimal_places=2, max_digits=12)),
                ("edition", models.PositiveIntegerField(default=0)),
            ],
        ),
    ]
