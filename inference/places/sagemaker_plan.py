"""What a deployment on SageMaker consists of: the parameters of each call, computed and sent nowhere."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any

from inference.models import Deployment, EngineKind, SourceKind

VARIANT = "all"
MAX_IMBALANCE = 1


class PlanError(ValueError):
    """The deployment or a setting does not allow a plan; the message names the field or the variable."""


@dataclass(frozen=True)
class SageMakerSettings:
    """`accelerators` per copy; `memory_mb` is what a copy needs at least."""

    role: str
    image: str
    instance_type: str
    max_instances: int
    accelerators: int
    memory_mb: int

    @classmethod
    def load(cls) -> SageMakerSettings:
        """From the environment. Raises `PlanError`."""
        return cls(
            _text("ROLE"),
            _text("IMAGE"),
            _text("INSTANCE_TYPE"),
            _number("MAX_INSTANCES"),
            _number("ACCELERATORS"),
            _number("MEMORY_MB"),
        )


def _text(name: str) -> str:
    value = os.environ.get(f"BURSAR_SAGEMAKER_{name}", "")
    if not value:
        raise PlanError(f"BURSAR_SAGEMAKER_{name} is not set.")
    return value


def _number(name: str) -> int:
    text = _text(name)
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) > 0):
        raise PlanError(f"BURSAR_SAGEMAKER_{name} must be a whole number, 1 or more.")
    return int(text)


@dataclass(frozen=True)
class Plan:
    """The parameters of the four calls that make a deployment. A model and a configuration cannot be changed: their
    names end in a digest of what they hold."""

    model: dict[str, Any]
    endpoint_config: dict[str, Any]
    endpoint: dict[str, Any]
    component: dict[str, Any]

    def calls(self) -> list[dict[str, Any]]:
        """What creates everything, in order."""
        return [
            {"call": "CreateModel", "parameters": self.model},
            {"call": "CreateEndpointConfig", "parameters": self.endpoint_config},
            {"call": "CreateEndpoint", "parameters": self.endpoint},
            {"call": "CreateInferenceComponent", "parameters": self.component},
        ]


def plan_of(deployment: Deployment, settings: SageMakerSettings) -> Plan:
    """Raises `PlanError`."""
    if deployment.engine != EngineKind.SAGEMAKER:
        raise PlanError(f"{deployment}: engine is not SageMaker.")
    if deployment.model_version.source_kind != SourceKind.S3:
        raise PlanError(f"{deployment}: the model version's source must be on S3.")
    slug = _resource_name(f"bursar-{deployment.slug}")
    model = _named("ModelName", slug, _model(deployment, settings))
    config = _named("EndpointConfigName", slug, _endpoint_config(settings))
    return Plan(
        model=model,
        endpoint_config=config,
        endpoint={"EndpointName": slug, "EndpointConfigName": config["EndpointConfigName"]},
        component={
            "InferenceComponentName": slug,
            "EndpointName": slug,
            "VariantName": VARIANT,
            "Specification": _specification(model["ModelName"], settings),
            "RuntimeConfig": {"CopyCount": deployment.desired_replicas},
        },
    )


def _resource_name(name: str) -> str:
    """Letters, digits and hyphens, at most 50; one that had to be changed carries a digest, so that no two meet."""
    exact = name[:50].replace("_", "-").rstrip("-")
    return exact if exact == name else f"{exact[:41].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _named(field: str, slug: str, parameters: dict[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:10]
    return {field: f"{slug}-{digest}"} | parameters


def _model(deployment: Deployment, settings: SageMakerSettings) -> dict[str, Any]:
    version = deployment.model_version
    source = {"S3Uri": version.source.rstrip("/") + "/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    environment = {
        "SM_VLLM_MODEL": "/opt/ml/model",
        "SM_VLLM_SERVED_MODEL_NAME": version.name,
        "SM_VLLM_MAX_MODEL_LEN": str(version.context_length),
        "SM_VLLM_SCHEDULING_POLICY": "priority",
    }
    container = {"Image": settings.image, "ModelDataSource": {"S3DataSource": source}, "Environment": environment}
    return {"PrimaryContainer": container, "ExecutionRoleArn": settings.role}


def _endpoint_config(settings: SageMakerSettings) -> dict[str, Any]:
    variant = {
        "VariantName": VARIANT,
        "InstanceType": settings.instance_type,
        "InitialInstanceCount": 1,
        "ManagedInstanceScaling": {
            "Status": "ENABLED",
            "MinInstanceCount": 1,
            "MaxInstanceCount": settings.max_instances,
        },
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    return {"ExecutionRoleArn": settings.role, "ProductionVariants": [variant]}


def _specification(model: str, settings: SageMakerSettings) -> dict[str, Any]:
    return {
        "ModelName": model,
        "ComputeResourceRequirements": {
            "NumberOfAcceleratorDevicesRequired": settings.accelerators,
            "MinMemoryRequiredInMb": settings.memory_mb,
        },
        # A copy that is added starts from what its instance has already.
        "DataCacheConfig": {"EnableCaching": True},
        "SchedulingConfig": {
            "PlacementStrategy": "SPREAD",
            # Permissive: a zone without room must not keep the others from growing.
            "AvailabilityZoneBalance": {"EnforcementMode": "PERMISSIVE", "MaxImbalance": MAX_IMBALANCE},
        },
    }
