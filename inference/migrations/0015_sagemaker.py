from django.db import migrations, models

CHOICES = [
    ("vllm", "vLLM"),
    ("openai", "OpenAI-compatible server"),
    ("simulated", "Simulated"),
    ("sagemaker", "SageMaker endpoint"),
]


class Migration(migrations.Migration):
    dependencies = [("inference", "0014_engine_events")]

    operations = [
        migrations.AlterField(
            model_name="deployment", name="engine", field=models.CharField(choices=CHOICES, max_length=12)
        ),
        migrations.AlterField(
            model_name="modelversion",
            name="engine",
            field=models.CharField(
                blank=True,
                choices=CHOICES,
                db_default="",
                default="",
                help_text="What its deployments run. Empty: each says for itself.",
                max_length=12,
            ),
        ),
    ]
