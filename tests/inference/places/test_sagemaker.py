"""The calls to SageMaker, whose parameters and answers botocore checks against the service's own description."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.stub import Stubber

from inference.models import Deployment, EngineKind, ModelVersion
from inference.places.sagemaker import Copies, NotYet, PlaceError, SageMaker
from inference.places.sagemaker_plan import Plan, PlanError, SageMakerSettings, plan_of

ARN = "arn:aws:sagemaker:eu-central-1:123456789012:thing/bursar"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = SageMakerSettings(
    "arn:aws:iam::123456789012:role/bursar", "1.dkr.ecr.eu-central-1.amazonaws.com/vllm:1", "ml.p5.48xlarge", 4, 8, 1024
)
NAME = "bursar-chat"


def deployment(**changes: Any) -> Deployment:
    version = ModelVersion(name="m", version="1", source_kind="s3", source="s3://bucket/m", context_length=4096)
    return Deployment(**{"slug": "chat", "engine": EngineKind.SAGEMAKER, "model_version": version} | changes)


def test_names_that_had_to_be_changed_do_not_meet() -> None:
    slugs = ["a-b", "a_b", "x" * 60, "x" * 59 + "y", "x" * 42 + "_", "x" * 43 + "-"]
    names = [plan_of(deployment(slug=slug), SETTINGS).endpoint["EndpointName"] for slug in slugs]
    assert names[0] == "bursar-a-b"
    assert len(set(names)) == len(slugs)
    assert all(re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", name) for name in names)


@pytest.fixture
def plan() -> Plan:
    return plan_of(deployment(desired_replicas=3), SETTINGS)


@pytest.fixture
def stub() -> Iterator[Stubber]:
    client = boto3.client(
        "sagemaker", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    with Stubber(client) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def missing(stub: Stubber, *calls: str) -> None:
    for call in calls:
        stub.add_client_error(call, "ValidationException", "Could not find it.")


def found_model(stub: Stubber, plan: Plan) -> None:
    stub.add_response("describe_model", {"ModelName": "m", "CreationTime": NOW, "ModelArn": ARN})
    config = {"EndpointConfigName": plan.endpoint_config["EndpointConfigName"], "EndpointConfigArn": ARN}
    stub.add_response(
        "describe_endpoint_config",
        config | {"ProductionVariants": plan.endpoint_config["ProductionVariants"], "CreationTime": NOW},
    )


def endpoint(config: str, status: str = "InService") -> dict[str, Any]:
    answer = {"EndpointName": NAME, "EndpointArn": ARN, "EndpointConfigName": config, "EndpointStatus": status}
    return answer | {"CreationTime": NOW, "LastModifiedTime": NOW}


COMPONENT = {
    "InferenceComponentName": NAME,
    "InferenceComponentArn": ARN,
    "EndpointName": NAME,
    "EndpointArn": ARN,
    "CreationTime": NOW,
    "LastModifiedTime": NOW,
    "InferenceComponentStatus": "InService",
    "RuntimeConfig": {"DesiredCopyCount": 3, "CurrentCopyCount": 2},
}


def test_it_creates_what_is_missing_as_far_as_the_endpoint(stub: Stubber, plan: Plan) -> None:
    for kind, parameters, arn in (
        ("model", plan.model, "ModelArn"),
        ("endpoint_config", plan.endpoint_config, "EndpointConfigArn"),
        ("endpoint", plan.endpoint, "EndpointArn"),
    ):
        missing(stub, f"describe_{kind}")
        stub.add_response(f"create_{kind}", {arn: ARN}, parameters)
    with pytest.raises(NotYet, match="create_endpoint"):
        SageMaker(stub.client).apply(plan)


def test_it_creates_a_component_that_is_spread_over_zones(stub: Stubber, plan: Plan) -> None:
    found_model(stub, plan)
    stub.add_response("describe_endpoint", endpoint(plan.endpoint["EndpointConfigName"]))
    missing(stub, "describe_inference_component")
    stub.add_response("create_inference_component", {"InferenceComponentArn": ARN}, plan.component)
    assert SageMaker(stub.client).apply(plan) == ["create_inference_component"]
    scheduling = plan.component["Specification"]["SchedulingConfig"]
    assert scheduling["AvailabilityZoneBalance"] == {"EnforcementMode": "PERMISSIVE", "MaxImbalance": 1}
    assert plan.component["RuntimeConfig"] == {"CopyCount": 3}


def test_it_updates_a_component_that_is_there(stub: Stubber, plan: Plan) -> None:
    found_model(stub, plan)
    stub.add_response("describe_endpoint", endpoint(plan.endpoint["EndpointConfigName"]))
    stub.add_response("describe_inference_component", COMPONENT)
    wanted = {key: plan.component[key] for key in ("InferenceComponentName", "Specification", "RuntimeConfig")}
    stub.add_response("update_inference_component", {"InferenceComponentArn": ARN}, wanted)
    assert SageMaker(stub.client).apply(plan) == ["update_inference_component"]


def test_it_updates_an_endpoint_whose_configuration_is_another(stub: Stubber, plan: Plan) -> None:
    found_model(stub, plan)
    stub.add_response("describe_endpoint", endpoint("old"))
    stub.add_response("update_endpoint", {"EndpointArn": ARN}, plan.endpoint)
    with pytest.raises(NotYet, match="update_endpoint"):
        SageMaker(stub.client).apply(plan)


def test_it_deletes_the_component_first_and_then_the_rest(stub: Stubber, plan: Plan) -> None:
    stub.add_response("describe_inference_component", COMPONENT)
    stub.add_response("delete_inference_component", {}, {"InferenceComponentName": NAME})
    with pytest.raises(NotYet):
        SageMaker(stub.client).delete(plan)
    missing(stub, "describe_inference_component")
    stub.add_response("describe_endpoint", endpoint("old"))
    stub.add_response("delete_endpoint", {}, {"EndpointName": NAME})
    missing(stub, "describe_endpoint_config", "describe_model")
    assert SageMaker(stub.client).delete(plan) == ["delete_endpoint"]


def test_it_sets_and_reads_the_number_of_copies(stub: Stubber) -> None:
    wanted = {"InferenceComponentName": NAME, "DesiredRuntimeConfig": {"CopyCount": 5}}
    stub.add_response("update_inference_component_runtime_config", {"InferenceComponentArn": ARN}, wanted)
    stub.add_response("describe_inference_component", COMPONENT)
    place = SageMaker(stub.client)
    place.set_replicas(NAME, 5)
    assert place.describe(NAME) == Copies("InService", desired=3, ready=2)


@pytest.mark.parametrize("code", ["ThrottlingException", "ValidationException"])
def test_a_failure_names_the_call_and_the_code(stub: Stubber, code: str) -> None:
    stub.add_client_error("describe_inference_component", code, "No.")
    with pytest.raises(PlaceError, match=f"describe_inference_component: {code}"):
        SageMaker(stub.client).describe(NAME)


def test_a_call_without_an_answer_is_a_failure(stub: Stubber, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(**_: Any) -> None:
        raise ReadTimeoutError(endpoint_url="https://aws")

    monkeypatch.setattr(stub.client, "describe_inference_component", silent)
    with pytest.raises(PlaceError, match="ReadTimeoutError"):
        SageMaker(stub.client).describe(NAME)


def test_only_a_deployment_on_sagemaker_has_a_plan() -> None:
    with pytest.raises(PlanError, match="engine"):
        plan_of(deployment(engine=EngineKind.VLLM), SETTINGS)


def test_what_cannot_be_changed_is_named_by_what_it_holds(plan: Plan) -> None:
    changed = plan_of(deployment(desired_replicas=9), SETTINGS)
    assert changed.model == plan.model
    version = ModelVersion(name="m", version="2", source_kind="s3", source="s3://bucket/n", context_length=4096)
    assert plan_of(deployment(model_version=version), SETTINGS).model["ModelName"] != plan.model["ModelName"]
