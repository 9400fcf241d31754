"""Who makes the replicas: each sets a number, may be asked again, and says in one line why it could not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from django.conf import settings

from gpu_workers import settings as worker_settings
from gpu_workers.local_replicas import wanted_fields, wanted_key
from inference.places import sagemaker
from inference.places.sagemaker import PlaceError
from inference.scaling.models import Driver, ScalingPolicy

TIMEOUT_S = 5.0

SetReplicas = Callable[[ScalingPolicy, int], None]


def set_replicas(policy: ScalingPolicy, replicas: int) -> None:
    """Raises `PlaceError`."""
    DRIVERS[Driver(policy.driver)](policy, replicas)


def _local(policy: ScalingPolicy, replicas: int) -> None:
    slug = policy.deployment.slug
    fields = wanted_fields(worker_settings.seal_key(), slug, replicas)
    try:
        with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=TIMEOUT_S) as valkey:
            valkey.hset(wanted_key(slug), mapping=fields)
    except redis.RedisError as error:
        raise PlaceError(f"Valkey: {type(error).__name__}") from None


def _kubernetes(policy: ScalingPolicy, replicas: int) -> None:
    from kubernetes.client import ApiException, AppsV1Api
    from urllib3.exceptions import HTTPError

    try:
        AppsV1Api(_cluster()).patch_namespaced_deployment_scale(
            policy.name, policy.namespace, {"spec": {"replicas": replicas}}, _request_timeout=TIMEOUT_S
        )
    except ApiException as error:
        raise PlaceError(f"Kubernetes answered {error.status} {error.reason}"[:120]) from None
    except (HTTPError, OSError) as error:
        raise PlaceError(f"Kubernetes: {type(error).__name__}") from None


def _cluster() -> Any:
    """By the pod's service account, or else by KUBECONFIG. Raises `PlaceError`."""
    from kubernetes import config
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.config import ConfigException

    configuration = Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException:
            config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError):
        raise PlaceError("Kubernetes: neither a service account nor KUBECONFIG") from None
    configuration.retries = 0
    return ApiClient(configuration)


def _sagemaker(policy: ScalingPolicy, replicas: int) -> None:
    sagemaker.connect(policy.region).set_replicas(policy.name, replicas)


DRIVERS: dict[Driver, SetReplicas] = {
    Driver.LOCAL: _local,
    Driver.KUBERNETES: _kubernetes,
    Driver.SAGEMAKER: _sagemaker,
}
