from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_requires_evaluation")]

    operations = [
        migrations.AddField(
            model_name="organisation",
            name="residency",
            field=models.SlugField(
                blank=True,
                db_default="",
                db_index=False,
                default="",
                help_text="Its requests go to deployments of this zone and to no others. Empty: anywhere.",
                max_length=40,
            ),
        ),
    ]
