"""The whole product as processes, for tests and benchmarks: web, worker, scheduler and a simulated engine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from console.local.ports import free_port
from gpu_workers.engine_state import ActiveEngine, state_file
from tests.services import Services

ROOT = Path(__file__).resolve().parents[1]
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
DEPLOYMENT = "simulated-local"
MODEL = "smollm2-135m-instruct"


@dataclass
class Stack:
    """Processes by name. `kill` is kill -9; `start` brings one up again with the same environment."""

    services: Services
    directory: Path
    web_count: int = 1
    extra: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ready_timeout_s: float = READY_TIMEOUT_S
    # What some processes are told differently, by name.
    told: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = [free_port() for _ in range(self.web_count)]
        self.engine_port = free_port()
        self.api_key = f"bsk_{secrets.token_urlsafe(32)}"
        self.environment = self._environment()
        self.commands = self._commands()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def engine_url(self) -> str:
        return self.environment["BURSAR_ENGINE_URL"].removesuffix("/v1")

    def _environment(self) -> dict[str, str]:
        origins = ",".join(f"http://127.0.0.1:{port}" for port in self.ports)
        engine = {
            "BURSAR_DEPLOYMENT": DEPLOYMENT,
            "BURSAR_ENGINE": "simulated",
            "BURSAR_ENGINE_URL": f"http://127.0.0.1:{self.engine_port}/v1",
            "BURSAR_ENGINE_MODEL": "simulated",
            "BURSAR_RUN_DIRECTORY": str(self.directory / "run"),
            "BURSAR_ENGINE_API_KEY": secrets.token_urlsafe(16),
            "BURSAR_MODEL_NAME": MODEL,
        }
        people = {
            f"BURSAR_{name}": value
            for name, value in {
                "ADMIN_USER": "admin",
                "ADMIN_PASSWORD": secrets.token_urlsafe(12),
                "OFFICER_USER": "officer",
                "OFFICER_PASSWORD": secrets.token_urlsafe(12),
                "USER": "demo",
                "USER_PASSWORD": secrets.token_urlsafe(12),
                "API_KEY": self.api_key,
            }.items()
        }
        keys = {
            "BURSAR_SECRET_KEY": secrets.token_hex(32),
            "BURSAR_RECORD_KEY": secrets.token_hex(32),
            "BURSAR_SEAL_KEY": secrets.token_hex(32),
        }
        web = {"BURSAR_URL": self.url, "BURSAR_ORIGINS": origins, "BURSAR_LOG_FORMAT": "json"}
        python_path = {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "DJANGO_SETTINGS_MODULE": "console.settings"}
        return os.environ | self.services.environment | engine | people | keys | web | python_path | dict(self.extra)

    def _commands(self) -> dict[str, list[str]]:
        """What the Procfile runs, by name; several web processes are web0, web1, …"""
        python = sys.executable
        uvicorn = [python, "-m", "uvicorn", "console.asgi:application", "--host", "127.0.0.1"]
        uvicorn += ["--ws", "websockets-sansio", "--ws-per-message-deflate", "false", "--ws-max-size", "1048576"]
        uvicorn += ["--no-access-log", "--lifespan", "on", "--timeout-graceful-shutdown", "5"]
        celery = [python, "-m", "celery", "-A"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        queue = f"gpu.{self.environment['BURSAR_DEPLOYMENT']}"
        worker = ["gpu_workers.app", "worker", "-P", "threads", "-c", "256", "-Q", queue, *quiet]
        scheduler = ["console.celery", "worker", "-B", "-P", "threads", "-c", "2", "-Q", "platform", *quiet]
        scheduler += ["-s", str(self.directory / "beat")]
        return {
            "engine": [python, "-m", "gpu_workers.supervisor"],
            "worker": [*celery, *worker],
            "scheduler": [*celery, *scheduler],
            **{f"web{index}": [*uvicorn, "--port", str(port)] for index, port in enumerate(self.ports)},
        }

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *names: str) -> None:
        for name in names:
            with self.log(name).open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self.commands[name],
                    cwd=ROOT,
                    env=self.environment | self.told.get(name, {}),
                    stdout=log,
                    stderr=log,
                )

    def start_worker(self, name: str, deployment: str, **told: str) -> None:
        """One more worker, of any deployment; beside the same first engine unless it is told of another."""
        queues = {f"gpu.{self.environment['BURSAR_DEPLOYMENT']}": f"gpu.{deployment}"}
        self.commands[name] = [queues.get(word, word) for word in self.commands["worker"]]
        own = deployment == self.environment["BURSAR_DEPLOYMENT"]
        supervised = {"BURSAR_ENGINE_SUPERVISED": "1" if own else "0"}
        self.told[name] = supervised | {"BURSAR_DEPLOYMENT": deployment, **told}
        self.start(name)

    def start_engine(self, name: str, deployment: str, **told: str) -> str:
        """One more engine, of another deployment; its URL, for a worker's `BURSAR_ENGINE_URL`."""
        url = f"http://127.0.0.1:{free_port()}/v1"
        self.commands[name] = self.commands["engine"]
        self.told[name] = {"BURSAR_ENGINE_URL": url, "BURSAR_DEPLOYMENT": deployment, **told}
        self.start(name)
        return url

    def start_all(self, *, scheduler: bool = False) -> None:
        for step in ("migrate", "seed_demo"):
            done = self.manage(step)
            assert done.returncode == 0, done.stderr
        self.start(*(name for name in self.commands if scheduler or name != "scheduler"))
        self.wait_ready()

    def wait_ready(self) -> None:
        for url in self.urls():
            what = f"{url} is ready; logs in {self.directory}"
            wait_for(lambda url=url: is_ready(url), what, self.ready_timeout_s)  # type: ignore[misc]

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> int:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def stop_all(self) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name)

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def active_engine_url(self) -> str:
        """Where the supervisor says that requests go; empty while no engine is active."""
        file = state_file(Path(self.environment["BURSAR_RUN_DIRECTORY"]), self.environment["BURSAR_DEPLOYMENT"])
        return ActiveEngine("", file).current().url.removesuffix("/v1")

    def running_at_engine(self) -> int:
        """Requests that the engine itself says it is working on."""
        metrics = httpx.get(f"{self.engine_url}/metrics").text
        line = next(line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running"))
        return int(float(line.rsplit(" ", 1)[1]))


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Poll until `condition()` is true. The time is a bound on hanging, not a claim about speed."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


@contextmanager
def running_stack(
    services: Services,
    directory: Path,
    *,
    web_count: int = 1,
    scheduler: bool = False,
    ready_timeout_s: float = READY_TIMEOUT_S,
    **extra: str,
) -> Iterator[Stack]:
    """A running stack; `extra` replaces variables of its environment, the engine's among them."""
    stack = Stack(services, directory, web_count, extra, ready_timeout_s=ready_timeout_s)
    try:
        stack.start_all(scheduler=scheduler)
        yield stack
    finally:
        stack.stop_all()
