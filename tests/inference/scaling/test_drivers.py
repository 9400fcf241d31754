"""What each driver says to its place, and that whatever comes back is one line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from inference.models import Deployment
from inference.places import sagemaker
from inference.places.sagemaker import PlaceError
from inference.scaling.drivers import set_replicas
from inference.scaling.models import ScalingPolicy

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "URL"}}]
users: [{name: me, user: {token: hidden}}]
"""


class Cluster(ThreadingHTTPServer):
    """An API server as far as a deployment's scale goes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Any]] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Cluster

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Content-Type"], self.headers["Authorization"], body))
        answer = json.dumps({"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 3}}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at what was asked."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    server = Cluster()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "config"
    file.write_text(KUBECONFIG.replace("URL", server.url))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    yield server
    server.shutdown()


def policy(**fields: Any) -> ScalingPolicy:
    return ScalingPolicy(deployment=Deployment(slug="chat"), **fields)


KUBERNETES = {"driver": "kubernetes", "namespace": "bursar", "name": "bursar-worker"}


def test_kubernetes_is_told_the_scale_of_the_deployment_alone(cluster: Cluster) -> None:
    set_replicas(policy(**KUBERNETES), 3)
    [(path, kind, authorization, body)] = cluster.asked
    assert path == "/apis/apps/v1/namespaces/bursar/deployments/bursar-worker/scale"
    assert kind in ("application/merge-patch+json", "application/strategic-merge-patch+json")
    assert authorization == "Bearer hidden"
    assert body == {"spec": {"replicas": 3}}


@pytest.mark.parametrize("status", [401, 403, 404, 409, 429, 500])
def test_what_kubernetes_refuses_is_one_line_without_a_secret(cluster: Cluster, status: int) -> None:
    cluster.status = status
    with pytest.raises(PlaceError, match=f"^Kubernetes answered {status} ") as refused:
        set_replicas(policy(**KUBERNETES), 3)
    assert "hidden" not in str(refused.value)
    assert len(cluster.asked) == 1


def test_a_cluster_that_is_not_there_is_one_line(cluster: Cluster) -> None:
    cluster.shutdown()
    cluster.server_close()
    with pytest.raises(PlaceError, match=r"^Kubernetes: MaxRetryError$"):
        set_replicas(policy(**KUBERNETES), 3)


def test_without_a_configuration_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(PlaceError, match="neither a service account nor KUBECONFIG"):
        set_replicas(policy(**KUBERNETES), 3)


SAGEMAKER = {"driver": "sagemaker", "name": "bursar-chat", "region": "eu-central-1"}
PARAMETERS = {"InferenceComponentName": "bursar-chat", "DesiredRuntimeConfig": {"CopyCount": 3}}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    client = boto3.client("sagemaker", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
    monkeypatch.setattr(sagemaker, "connect", lambda region: sagemaker.SageMaker(client))
    with Stubber(client) as stubber:
        yield stubber


def test_sagemaker_is_told_the_copies(stub: Stubber) -> None:
    arn = "arn:aws:sagemaker:eu-central-1:123456789012:inference-component/bursar-chat"
    stub.add_response("update_inference_component_runtime_config", {"InferenceComponentArn": arn}, PARAMETERS)
    set_replicas(policy(**SAGEMAKER), 3)
    stub.assert_no_pending_responses()


@pytest.mark.parametrize("code", ["ThrottlingException", "ValidationException", "ResourceLimitExceeded"])
def test_what_sagemaker_refuses_is_one_line(stub: Stubber, code: str) -> None:
    stub.add_client_error("update_inference_component_runtime_config", code, "who and what")
    with pytest.raises(PlaceError, match=f": {code}$"):
        set_replicas(policy(**SAGEMAKER), 3)
