from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("office", "0004_priceimport")]

    operations = [
        migrations.AlterField(
            model_name="invoice",
            name="order_id",
            field=models.PositiveBigIntegerField(db_index=True),
        ),
    ]
