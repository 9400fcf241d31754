"""Model versions and deployments of the reference workloads, to begin with. What is not known is an assumption.

An assumption stands in `assumed`, by the field's name: whoever adopts a preset looks at those first.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from inference.budget_models import BudgetPeriod
from inference.models import EngineKind, Quantization, SourceKind


@dataclass(frozen=True, slots=True)
class Preset:
    """`version` and `deployment` are fields of their tables; `cap` is the platform's budget: its period and USD."""

    about: str
    version: dict[str, Any]
    deployment: dict[str, Any]
    cap: tuple[BudgetPeriod, Decimal]
    assumed: dict[str, str]


PRESETS: dict[str, Preset] = {
    "small-instruct": Preset(
        about="A small instruct model on one GPU, for the FinTech assistant.",
        version={
            "name": "qwen3-4b-instruct",
            "version": "2507",
            "source_kind": SourceKind.HUB,
            "source": "Qwen/Qwen3-4B-Instruct-2507-FP8",
            "licence": "Apache-2.0",
            "parameters_total": Decimal("4.0"),
            "parameters_active": Decimal("4.0"),
            "quantization": Quantization.FP8,
            "kv_bytes_per_token": 2 * 36 * 8 * 128 * 2,  # layers, KV heads, head size, 16 bits
            "engine": EngineKind.VLLM,
            "engine_arguments": ["--max-num-seqs", "128", "--scheduling-policy", "priority"],
            "context_length": 32_768,
            "input_price": Decimal("0.05"),
            "cached_price": Decimal("0.01"),
            "output_price": Decimal("0.20"),
        },
        deployment={
            "slug": "qwen3-4b-instruct-1",
            "engine": EngineKind.VLLM,
            "desired_replicas": 4,
            "concurrency": 128,
            "hourly_price": Decimal("2.00"),
        },
        cap=(BudgetPeriod.MONTH, Decimal(50_000)),
        assumed={
            "input_price": "a price list of our own, not a provider's",
            "cached_price": "a fifth of the input price",
            "output_price": "four times the input price",
            "desired_replicas": "200 requests/s at peak, not measured",
            "concurrency": "the engine's batch, not measured",
            "hourly_price": "one GPU of 48 GB or more, on demand",
        },
    ),
    "qwen3.8-2.4t-a95b-nvfp4": Preset(
        about="A mixture of experts with 2.4 trillion parameters at NVFP4, for the B2B support workload.",
        version={
            "name": "qwen3.8-2.4t-a95b",
            "version": "nvfp4",
            "source_kind": SourceKind.HUB,
            "source": "Qwen/Qwen3.8-2.4T-A95B-NVFP4",
            "parameters_total": Decimal(2400),
            "parameters_active": Decimal(95),
            "quantization": Quantization.NVFP4,
            "engine": EngineKind.VLLM,
            "engine_arguments": [
                *("--tensor-parallel-size", "8", "--pipeline-parallel-size", "2", "--enable-expert-parallel"),
                *("--max-num-seqs", "256", "--scheduling-policy", "priority"),
            ],
            "context_length": 131_072,
            "input_price": Decimal("0.60"),
            "cached_price": Decimal("0.12"),
            "output_price": Decimal("2.40"),
        },
        deployment={
            "slug": "qwen38-2400b-a95b-1",
            "engine": EngineKind.VLLM,
            "desired_replicas": 1,
            "concurrency": 256,
            "hourly_price": Decimal("90.00"),
        },
        cap=(BudgetPeriod.YEAR, Decimal(500_000)),
        assumed={
            "source": "the name of the repository",
            "licence": "left empty: not known",
            "engine_arguments": "1.35 TB of weights at 4 bits and their scales, over two hosts of 8 GPUs of 180 GB",
            "context_length": "not known",
            "input_price": "from the hourly price at a use of one half, not measured",
            "cached_price": "a fifth of the input price",
            "output_price": "four times the input price",
            "concurrency": "the engine's batch, not measured",
            "hourly_price": "16 GPUs, reserved for long",
        },
    ),
}
