"""An engine is started as the catalog says, from the platform's table to the engine's own command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from console.local.ports import free_port
from gpu_workers.specification import specification_key
from inference.models import Deployment, ModelVersion
from inference.specifications import publish_specifications
from tests.console import people
from tests.services import Services
from tests.stack import ROOT, wait_for

pytestmark = pytest.mark.django_db
DATABASE = 13
# In vLLM's place: it notes what it was started with, and stays.
ENGINE = """#!{python}
import sys, time
with open({notes!r}, "w") as file:
    file.write("\\n".join(sys.argv[1:]))
time.sleep(600)
"""


@pytest.fixture
def url(services: Services, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("BURSAR_SEAL_KEY", "5e" * 32)
    settings.VALKEY_URL = services.valkey.url(DATABASE)
    yield settings.VALKEY_URL
    with redis.Redis.from_url(settings.VALKEY_URL) as valkey:
        valkey.flushdb()


@pytest.fixture
def deployment() -> Deployment:
    found: Deployment = people.deployment()
    found.model_version.engine_arguments = ["--max-num-batched-tokens", "2048", "--enable-expert-parallel"]
    found.model_version.save()
    return found


@pytest.fixture
def supervisor(tmp_path: Path, url: str, deployment: Deployment) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    engine = tmp_path / "python"
    engine.write_text(ENGINE.format(python=sys.executable, notes=str(tmp_path / "arguments")))
    engine.chmod(0o700)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "weights.bin").write_bytes(b"weights")
    started: list[subprocess.Popen[str]] = []

    def start(**more: str) -> subprocess.Popen[str]:
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "BURSAR_VALKEY_URL": url,
            "BURSAR_DEPLOYMENT": deployment.slug,
            "BURSAR_ENGINE": "vllm",
            "BURSAR_ENGINE_URL": f"http://127.0.0.1:{free_port()}/v1",
            "BURSAR_ENGINE_MODEL": "m",
            "BURSAR_ENGINE_PYTHON": str(engine),
            "BURSAR_MODEL_PATH": str(model),
            "BURSAR_RUN_DIRECTORY": str(tmp_path),
        }
        command = [sys.executable, "-m", "gpu_workers.supervisor"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment | more, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def arguments(tmp_path: Path) -> list[str]:
    notes = tmp_path / "arguments"
    wait_for(lambda: notes.exists() and notes.read_text(), "the engine is started", 30)
    return notes.read_text().split("\n")


def test_the_versions_arguments_reach_the_engine_before_ours_so_that_ours_count(
    deployment: Deployment, supervisor: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    assert publish_specifications() == Deployment.objects.filter(is_enabled=True).count()
    supervisor()
    words = arguments(tmp_path)
    assert words[2:5] == deployment.model_version.engine_arguments
    assert words.index("--host") > 4


def test_without_a_word_from_the_platform_it_is_started_as_the_host_says(
    supervisor: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    supervisor()
    assert arguments(tmp_path)[2] == "--host"


def test_the_versions_checksum_must_be_that_of_the_weights(
    deployment: Deployment, supervisor: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    ModelVersion.objects.filter(pk=deployment.model_version_id).update(checksum="ab" * 32)
    publish_specifications()
    process = supervisor()
    assert process.wait(timeout=30) == 2
    assert process.stderr is not None
    assert "abababababab" in process.stderr.read().splitlines()[-1]
    assert not (tmp_path / "arguments").exists()


def test_a_specification_of_another_platform_is_refused(
    deployment: Deployment, url: str, supervisor: Callable[..., subprocess.Popen[str]]
) -> None:
    publish_specifications()
    process = supervisor(BURSAR_SEAL_KEY="ab" * 32)
    assert process.wait(timeout=30) == 2
    assert process.stderr is not None
    assert process.stderr.read().splitlines()[-1] == "engine: the platform at this broker has another seal key."
    with redis.Redis.from_url(url) as valkey:
        valkey.hset(specification_key(deployment.slug), "i", b"short")
    assert supervisor().wait(timeout=30) == 2


def test_another_deployments_specification_does_not_pass_for_this_one(
    deployment: Deployment, url: str, supervisor: Callable[..., subprocess.Popen[str]]
) -> None:
    publish_specifications()
    with redis.Redis.from_url(url) as valkey:
        valkey.copy(specification_key(deployment.slug), specification_key("another"))
    assert supervisor(BURSAR_DEPLOYMENT="another").wait(timeout=30) == 2


def test_nothing_of_it_lies_in_clear(deployment: Deployment, url: str) -> None:
    publish_specifications()
    with redis.Redis.from_url(url) as valkey:
        assert b"expert" not in repr(valkey.hgetall(specification_key(deployment.slug))).encode()


def test_it_waits_for_the_broker_and_can_be_stopped_meanwhile(
    supervisor: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = supervisor(BURSAR_VALKEY_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert process.stderr is not None
    wait_for(lambda: process.poll() is not None or "specification_not_read" in process.stderr.readline(), "it asks", 30)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    assert not (tmp_path / "arguments").exists()
