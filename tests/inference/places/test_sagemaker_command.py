"""`manage.py sagemaker_plan` without AWS: what it shows, and what it refuses."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from inference.models import Deployment, ModelVersion

SETTINGS = {
    "ROLE": "arn:aws:iam::123456789012:role/bursar",
    "IMAGE": "vllm:1",
    "INSTANCE_TYPE": "ml.p5.48xlarge",
    "MAX_INSTANCES": "2",
    "ACCELERATORS": "8",
    "MEMORY_MB": "1024",
}


@pytest.fixture
def chat(db: None, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(f"BURSAR_SAGEMAKER_{name}", value)
    version = ModelVersion.objects.create(
        name="m-sagemaker", version="1", source_kind="s3", source="s3://bucket/m", context_length=4096
    )
    return Deployment.objects.create(slug="chat-sagemaker", model_version=version, engine="sagemaker")


def test_it_shows_the_calls_in_order(chat: Deployment) -> None:
    out = StringIO()
    call_command("sagemaker_plan", chat.slug, stdout=out)
    calls = [call["call"] for call in json.loads(out.getvalue())]
    assert calls == ["CreateModel", "CreateEndpointConfig", "CreateEndpoint", "CreateInferenceComponent"]


def test_it_names_the_setting_that_is_wrong(chat: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURSAR_SAGEMAKER_ACCELERATORS", "-1")
    with pytest.raises(CommandError, match="BURSAR_SAGEMAKER_ACCELERATORS"):
        call_command("sagemaker_plan", chat.slug)
