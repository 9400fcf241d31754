"""The manifests for HyperPod hold together; the operator's own schema is not published as a package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = sorted((Path(__file__).parents[2] / "deploy" / "hyperpod").glob("*.yaml"))


@pytest.fixture(params=MANIFESTS, ids=lambda path: path.name)
def spec(request: pytest.FixtureRequest) -> dict[str, Any]:
    manifest = yaml.safe_load(request.param.read_text())
    assert manifest["apiVersion"] == "inference.sagemaker.aws.amazon.com/v1"
    assert manifest["kind"] == "InferenceEndpointConfig"
    return dict(manifest["spec"])


def test_the_worker_serves_what_is_mounted_by_priority(spec: dict[str, Any]) -> None:
    worker = spec["worker"]
    arguments = dict(zip(worker["args"][::2], worker["args"][1::2], strict=True))
    assert arguments["--model"] == worker["modelVolumeMount"]["mountPath"]
    assert arguments["--served-model-name"] == spec["modelName"]
    assert arguments["--scheduling-policy"] == "priority"


def test_accelerators_are_asked_for_as_they_are_limited(spec: dict[str, Any]) -> None:
    resources = spec["worker"]["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"]


def test_caches_and_routing_are_ones_that_the_operator_knows(spec: dict[str, Any]) -> None:
    assert spec["intelligentRoutingSpec"]["routingStrategy"] in {"prefixaware", "kvaware", "session", "roundrobin"}
    cache = spec["kvCacheSpec"]
    assert cache["l2CacheSpec"]["l2CacheBackend"] in {"redis", "tieredstorage"}
    assert set(cache) <= {"enableL1Cache", "enableL2Cache", "l2CacheSpec", "cacheConfigFile"}
