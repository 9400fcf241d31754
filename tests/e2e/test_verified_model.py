"""A host whose model has the expected checksum serves, and says so with its heartbeat. A simulation stands for vLLM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from console.local.engine_choice import Wish, engine_settings
from console.local.ports import free_port
from gpu_workers.messages import WORKERS_KEY, decode_heartbeat, worker_key
from gpu_workers.model_directory import checksum_of
from tests.gpu_workers.test_model_directory import safetensors
from tests.services import Services
from tests.stack import ROOT, Stack, running_stack

# Takes vLLM's arguments and environment, and serves as the simulated engine.
STAND_IN = f"""#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in --port) port="$2";; --served-model-name) model="$2";; esac
  shift
done
export BURSAR_ENGINE_API_KEY="$VLLM_API_KEY" PYTHONPATH="{ROOT / "platform"}:{ROOT}"
exec "{sys.executable}" -m gpu_workers.engines.simulated --port "$port" --model "$model"
"""


@pytest.fixture(scope="module")
def checksum(model: Path) -> str:
    return checksum_of(model)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "small"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(safetensors())
    return directory


@pytest.fixture(scope="module")
def stack(services: Services, tmp_path_factory: pytest.TempPathFactory, model: Path, checksum: str) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("verified")
    python = directory / "python"
    python.write_text(STAND_IN)
    python.chmod(0o700)
    settings = engine_settings(Wish("vllm"), free_port(), "engine-key", python, model)
    settings |= {"BURSAR_ENGINE_MAX_RUNNING": "0"}  # the simulation takes all at once: no priority could be seen
    settings |= {"BURSAR_MODEL_CHECKSUM": checksum.upper(), "BURSAR_ENGINE_ARGUMENTS": '["--swap-space", "0"]'}
    with running_stack(services, directory, **settings) as running:
        yield running


def test_the_heartbeat_tells_which_model_was_verified(stack: Stack, checksum: str) -> None:
    asked = {"model": stack.environment["BURSAR_MODEL_NAME"], "messages": [{"role": "user", "content": "why?"}]}
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    answered = httpx.post(f"{stack.url}/v1/chat/completions", json=asked, headers=headers, timeout=60)
    assert answered.status_code == 200
    with redis.Redis.from_url(stack.environment["BURSAR_VALKEY_URL"]) as valkey:
        found = [valkey.get(worker_key(name.decode())) for name in valkey.smembers(WORKERS_KEY)]
    beats = [decode_heartbeat(beat) for beat in found if beat]
    mine = [beat for beat in beats if beat.deployment == stack.environment["BURSAR_DEPLOYMENT"]]
    assert [beat.model_checksum for beat in mine] == [checksum]
