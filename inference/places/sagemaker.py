"""Makes, scales, describes and removes a deployment on SageMaker. Every call may be made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inference.places.sagemaker_plan import Plan


class PlaceError(Exception):
    """SageMaker refused a call or did not answer; the message names the call and the error's code."""


class NotYet(PlaceError):
    """The endpoint is still being made or changed: the same command goes on later."""


@dataclass(frozen=True)
class Copies:
    """How many copies of the model are wanted, and how many are there."""

    status: str
    desired: int
    ready: int


class SageMaker:
    """`client` is boto3's for `sagemaker`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def apply(self, plan: Plan) -> list[str]:
        """Create what is missing and update the rest; the calls that were made. Raises `PlaceError`."""
        done: list[str] = []
        if self._found("describe_model", ModelName=plan.model["ModelName"]) is None:
            done.append(self._do("create_model", plan.model))
        config = {"EndpointConfigName": plan.endpoint_config["EndpointConfigName"]}
        if self._found("describe_endpoint_config", **config) is None:
            done.append(self._do("create_endpoint_config", plan.endpoint_config))
        self._apply_endpoint(plan, done)
        self._apply_component(plan, done)
        return done

    def _apply_endpoint(self, plan: Plan, done: list[str]) -> None:
        found = self._found("describe_endpoint", EndpointName=plan.endpoint["EndpointName"])
        if found is None:
            done.append(self._do("create_endpoint", plan.endpoint))
            raise NotYet(f"Made: {', '.join(done)}. The endpoint is not in service yet: apply again.")
        if found["EndpointStatus"] != "InService":
            raise NotYet(f"The endpoint is {found['EndpointStatus']}: apply again.")
        if found["EndpointConfigName"] != plan.endpoint["EndpointConfigName"]:
            done.append(self._do("update_endpoint", plan.endpoint))
            raise NotYet(f"Made: {', '.join(done)}. The endpoint is not in service yet: apply again.")

    def _apply_component(self, plan: Plan, done: list[str]) -> None:
        name = plan.component["InferenceComponentName"]
        if self._found("describe_inference_component", InferenceComponentName=name) is None:
            done.append(self._do("create_inference_component", plan.component))
            return
        changes = ("InferenceComponentName", "Specification", "RuntimeConfig")
        done.append(self._do("update_inference_component", {key: plan.component[key] for key in changes}))

    def delete(self, plan: Plan) -> list[str]:
        """Remove what there is, in the order in which it depends on each other. Raises `PlaceError`."""
        keys = {
            "inference_component": {"InferenceComponentName": plan.component["InferenceComponentName"]},
            "endpoint": {"EndpointName": plan.endpoint["EndpointName"]},
            "endpoint_config": {"EndpointConfigName": plan.endpoint_config["EndpointConfigName"]},
            "model": {"ModelName": plan.model["ModelName"]},
        }
        done = []
        for kind, key in keys.items():
            found = self._found(f"describe_{kind}", **key)
            if found is None:
                continue
            if found.get("InferenceComponentStatus") != "Deleting":
                done.append(self._do(f"delete_{kind}", key))
            if kind == "inference_component":
                # An endpoint with a component on it is not deleted.
                raise NotYet("The component is being deleted: delete again.")
        return done

    def set_replicas(self, component: str, copies: int) -> None:
        """Raises `PlaceError`."""
        runtime = {"CopyCount": copies}
        self._do(
            "update_inference_component_runtime_config",
            {"InferenceComponentName": component, "DesiredRuntimeConfig": runtime},
        )

    def describe(self, component: str) -> Copies | None:
        """None where there is no such component. Raises `PlaceError`."""
        found = self._found("describe_inference_component", InferenceComponentName=component)
        if found is None:
            return None
        runtime = found.get("RuntimeConfig", {})
        return Copies(
            found.get("InferenceComponentStatus", ""),
            runtime.get("DesiredCopyCount", 0),
            runtime.get("CurrentCopyCount", 0),
        )

    def _do(self, call: str, parameters: dict[str, Any]) -> str:
        _ask(call, getattr(self._client, call), parameters)
        return call

    def _found(self, call: str, **key: str) -> dict[str, Any] | None:
        return _ask(call, getattr(self._client, call), key, missing_is_none=True)


def _ask(
    call: str, function: Callable[..., Any], parameters: dict[str, Any], *, missing_is_none: bool = False
) -> dict[str, Any] | None:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return function(**parameters)  # type: ignore[no-any-return]
    except ClientError as error:
        detail = error.response.get("Error", {})
        # SageMaker has no error of its own for what is not there.
        if missing_is_none and "could not find" in str(detail.get("Message", "")).lower():
            return None
        raise PlaceError(f"{call}: {detail.get('Code', 'unknown')}") from None
    except BotoCoreError as error:
        raise PlaceError(f"{call}: {type(error).__name__}") from None


def connect(region: str) -> SageMaker:
    """Credentials are found by boto3's own chain."""
    import boto3

    return SageMaker(boto3.client("sagemaker", region_name=region))
