from datetime import date
from decimal import Decimal
from typing import Any

import django.core.validators
from django.db import migrations, models

import gpu_workers.identifiers

ENGINES = [
    ("vllm", "vLLM"),
    ("openai", "OpenAI-compatible server"),
    ("simulated", "Simulated"),
    ("sagemaker", "SageMaker endpoint"),
    ("tensorrt", "TensorRT"),
]
NVIDIA = "https://www.nvidia.com/en-us/data-center"
# Name, GB, GB/s, FP8 and NVFP4 in hardware, where that is published, and USD an hour: a round figure near what one costs
# on demand on PRICED_ON, nobody's offer.
ACCELERATORS = [
    ("L4", 24, 300, True, False, f"{NVIDIA}/l4/", "0.80"),
    ("A100 40 GB", 40, 1555, False, False, f"{NVIDIA}/a100/", "1.30"),
    ("L40S", 48, 864, True, False, f"{NVIDIA}/l40s/", "1.80"),
    ("A100 80 GB", 80, 2039, False, False, f"{NVIDIA}/a100/", "1.90"),
    ("H100", 80, 3350, True, False, f"{NVIDIA}/h100/", "3.00"),
    ("H200", 141, 4800, True, False, f"{NVIDIA}/h200/", "3.80"),
    ("B200", 180, 8000, True, True, f"{NVIDIA}/dgx-b200/", "6.00"),
    (
        *("B300", 288, 8000, True, True),
        "https://developer.nvidia.com/blog/inside-nvidia-blackwell-ultra-the-chip-powering-the-ai-factory-era/",
        "8.00",
    ),
]
PRICED_ON = date(2026, 12, 1)


def seed(apps: Any, schema_editor: Any) -> None:
    rows = apps.get_model("inference", "Accelerator").objects
    for name, memory, bandwidth, fp8, nvfp4, source, price in ACCELERATORS:
        rows.create(
            name=name,
            memory_gb=memory,
            bandwidth_gb_s=bandwidth,
            fp8_native=fp8,
            nvfp4_native=nvfp4,
            source=source,
            usd_per_hour=Decimal(price),
            priced_on=PRICED_ON,
        )


def at_least_one(most: int) -> list[Any]:
    return [django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(most)]


class Migration(migrations.Migration):
    dependencies = [("inference", "0015_sagemaker")]

    operations = [
        migrations.AddField(
            model_name="modelversion",
            name="kv_bytes_per_token",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text="Usually 2 × layers × KV heads × head size × bytes of an element. Empty: not known.",
                null=True,
                validators=at_least_one(1_000_000_000),
                verbose_name="KV cache (bytes/token)",
            ),
        ),
        migrations.AlterField(
            model_name="deployment", name="engine", field=models.CharField(choices=ENGINES, max_length=12)
        ),
        migrations.AlterField(
            model_name="modelversion",
            name="engine",
            field=models.CharField(
                blank=True,
                choices=ENGINES,
                db_default="",
                default="",
                help_text="What its deployments run. Empty: each says for itself.",
                max_length=12,
            ),
        ),
        migrations.CreateModel(
            name="Accelerator",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=gpu_workers.identifiers.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=40, unique=True)),
                (
                    "memory_gb",
                    models.PositiveIntegerField(
                        help_text="Of one, in 10⁹ bytes.", validators=at_least_one(100_000), verbose_name="memory (GB)"
                    ),
                ),
                (
                    "bandwidth_gb_s",
                    models.PositiveIntegerField(
                        help_text="Of its memory, in 10⁹ bytes per second.",
                        validators=at_least_one(10_000_000),
                        verbose_name="bandwidth (GB/s)",
                    ),
                ),
                (
                    "fp8_native",
                    models.BooleanField(
                        default=False, help_text="Else FP8 is for weights only.", verbose_name="FP8 native"
                    ),
                ),
                (
                    "nvfp4_native",
                    models.BooleanField(
                        default=False, help_text="Else NVFP4 is for weights only.", verbose_name="NVFP4 native"
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        help_text="Where the figures are published.",
                        max_length=300,
                        validators=[django.core.validators.URLValidator(schemes=["https"])],
                    ),
                ),
                (
                    "usd_per_hour",
                    models.DecimalField(
                        decimal_places=4,
                        help_text="Of one, on demand. An assumption: set what you pay.",
                        max_digits=12,
                        validators=[
                            django.core.validators.MinValueValidator(Decimal(0)),
                            django.core.validators.MaxValueValidator(Decimal(100_000)),
                        ],
                        verbose_name="price (USD/h)",
                    ),
                ),
                ("priced_on", models.DateField(help_text="The day that the price was set.", verbose_name="price of")),
            ],
            options={
                "ordering": ["memory_gb", "bandwidth_gb_s", "name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(memory_gb__gte=1, bandwidth_gb_s__gte=1), name="accelerator_figures"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(usd_per_hour__gte=0, usd_per_hour__lte=Decimal(100_000)),
                        name="accelerator_price",
                        violation_error_message="A price is not negative, and not above 100,000 USD per hour.",
                    ),
                ],
            },
        ),
        migrations.RunPython(seed, migrations.RunPython.noop),
    ]
