"""The manifests' own commands, variables and probes, run as processes: what Kubernetes would start does serve.

Only addresses are replaced, and the engine by a simulated one, since there is neither a cluster nor a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.local.ports import free_port
from tests.deploy import manifests
from tests.deploy.manifests import Container
from tests.services import running_services
from tests.stack import MODEL, ROOT, Stack, wait_for

WEB, WORKER = "bursar-web/web", "bursar-worker/worker"
RUN_TIMEOUT_S = 120  # a bound on hanging, not a claim about speed
SCHEDULER, MIGRATE = "bursar-scheduler/scheduler", "bursar-migrate/migrate"


class Deployed:
    """The containers of the base as processes, with addresses of this machine."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.web_port, self.engine_port = free_port(), stack.engine_port
        known = stack.environment
        self.secrets = {
            ("bursar-broker", "valkey-url"): known["BURSAR_VALKEY_URL"],
            ("bursar-broker", "seal-key"): known["BURSAR_SEAL_KEY"],
            ("bursar-platform", "database-url"): known["BURSAR_DATABASE_URL"],
            ("bursar-platform", "secret-key"): known["BURSAR_SECRET_KEY"],
            ("bursar-platform", "record-key"): known["BURSAR_RECORD_KEY"],
            ("bursar-engine", "api-key"): known["BURSAR_ENGINE_API_KEY"],
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    def environment(self, one: Container) -> dict[str, str]:
        """Nothing of Bursar but what the container is given, with the engine at another port."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("BURSAR_")}
        given = one.environment(self.secrets)
        if "BURSAR_ENGINE_URL" in given:
            given["BURSAR_ENGINE_URL"] = given["BURSAR_ENGINE_URL"].replace(":8000", f":{self.engine_port}")
        known["PATH"] = f"{Path(sys.executable).parent}:{known['PATH']}"  # as the image has it: its `python` is ours
        code = {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "DJANGO_SETTINGS_MODULE": "console.settings"}
        return known | code | given

    def command(self, one: Container) -> list[str]:
        words = one.command(one.environment(self.secrets))
        return [f"--port={self.web_port}" if word == "--port=8000" else word for word in words]

    def start(self, name: str) -> None:
        one = manifests.container(name)
        with self.stack.log(one.workload).open("ab") as log:
            self.stack.processes[name] = subprocess.Popen(
                self.command(one), cwd=ROOT, env=self.environment(one), stdout=log, stderr=log
            )

    def start_engine(self) -> None:
        settings = self.environment(manifests.container(WORKER))
        words = ["--port", str(self.engine_port), "--model", settings["BURSAR_ENGINE_MODEL"]]
        words += ["--max-running", settings["BURSAR_ENGINE_MAX_RUNNING"], "--scheduling-policy", "priority"]
        self.stack.processes["engine"] = subprocess.Popen(
            [sys.executable, "-m", "gpu_workers.engines.simulated", *words],
            cwd=ROOT,
            env=os.environ | {"BURSAR_ENGINE_API_KEY": settings["BURSAR_ENGINE_API_KEY"]},
        )

    def run(self, one: Container, command: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command or self.command(one),
            cwd=ROOT,
            env=self.environment(one),
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_TIMEOUT_S,
        )

    def probe(self, kind: str, *, headers: bool = True) -> httpx.Response:
        """A probe of the web container as the kubelet makes it: by address, with the headers that it is told."""
        request: dict[str, Any] = manifests.container(WEB).spec[kind]["httpGet"]
        told = {header["name"]: header["value"] for header in request["httpHeaders"]} if headers else {}
        return httpx.get(f"{self.url}{request['path']}", headers=told, follow_redirects=False)

    def succeeds(self, kind: str) -> bool:
        try:
            return self.probe(kind).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Migrated by the Job, with web and scheduler; without a worker."""
    settings = manifests.named("ConfigMap", "bursar-worker")["data"]
    deployment = {"BURSAR_DEPLOYMENT": settings["BURSAR_DEPLOYMENT"]}
    check = ["python", "manage.py", "migrate", "--check"]
    with running_services() as services:
        stack = Stack(services, tmp_path_factory.mktemp("deployed"), extra=deployment)
        running = Deployed(stack)
        try:
            assert running.run(manifests.container("bursar-web/migrated"), check).returncode != 0
            migrated = running.run(manifests.container(MIGRATE))
            assert migrated.returncode == 0, migrated.stderr
            seeded = stack.manage("seed_demo")
            assert seeded.returncode == 0, seeded.stderr
            running.start(WEB)
            running.start(SCHEDULER)
            yield running
        finally:
            stack.stop_all()


def test_what_waits_for_the_migration_goes_on_after_it(deployed: Deployed) -> None:
    for name in ("bursar-web/migrated", "bursar-scheduler/migrated"):
        done = deployed.run(manifests.container(name))
        assert done.returncode == 0, done.stderr


def test_web_is_alive_without_a_worker_and_not_ready(deployed: Deployed) -> None:
    wait_for(lambda: deployed.succeeds("startupProbe"), "web has started")
    assert deployed.succeeds("livenessProbe")
    assert deployed.probe("readinessProbe").status_code == 503


@pytest.mark.parametrize("kind", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_without_its_headers_would_say_nothing_of_the_process(deployed: Deployed, kind: str) -> None:
    wait_for(lambda: deployed.succeeds("startupProbe"), "web has started")
    assert deployed.probe(kind, headers=False).status_code in (301, 400)


def test_a_worker_beside_its_engine_makes_it_ready_and_answers(deployed: Deployed) -> None:
    worker = manifests.container(WORKER)
    probe = worker.spec["readinessProbe"]["exec"]["command"]
    deployed.start(WORKER)
    assert deployed.run(worker, probe).returncode == 1  # no engine yet
    deployed.start_engine()
    wait_for(lambda: deployed.run(worker, probe).returncode == 0, "the worker's own probe succeeds")
    wait_for(lambda: deployed.succeeds("readinessProbe"), "web is ready")

    headers = {"Authorization": f"Bearer {deployed.stack.api_key}", "Host": "bursar.example"}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 8}
    answer = httpx.post(f"{deployed.url}/v1/chat/completions", headers=headers, json=body, timeout=60).json()
    assert answer["choices"][0]["message"]["content"], answer
    assert answer["usage"]["completion_tokens"] == 8


def test_the_scheduler_runs_and_does_periodic_work(deployed: Deployed) -> None:
    log = deployed.stack.log("bursar-scheduler")
    wait_for(lambda: "inference.apply_due_steps" in log.read_text(), f"beat sends tasks: {log}")
    assert deployed.stack.processes[SCHEDULER].poll() is None
