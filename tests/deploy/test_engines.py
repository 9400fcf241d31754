"""The engines of every deployment: the arguments that the platform relies on, on loopback alone."""

from __future__ import annotations

import pytest

from gpu_workers.engines import vllm
from tests.deploy import manifests
from tests.deploy.test_variables import VALUES
from tests.stack import ROOT

WANTED = ["--scheduling-policy=priority", "--enable-prefix-caching", "--enable-prompt-tokens-details"]


def kubernetes_engine() -> list[str]:
    engine = manifests.container("bursar-worker/engine")
    return engine.command(engine.environment(VALUES))


def compose_engine() -> list[str]:
    engine = manifests.compose()["services"]["engine"]
    return [*engine["entrypoint"], *engine["command"]]


@pytest.fixture(params=[kubernetes_engine, compose_engine], ids=["kubernetes", "compose"])
def command(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = request.param()
    return words


def test_it_is_started_as_the_platform_relies_on(command: list[str]) -> None:
    assert [word for word in WANTED if word not in command] == []
    assert command[:3] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    names = [word.split("=")[0] for word in command]
    assert {"--model", "--served-model-name", "--max-num-seqs"} <= set(names)
    assert len(names) == len(set(names))


def test_it_listens_on_loopback_alone_where_the_worker_asks(command: list[str]) -> None:
    assert "--host=127.0.0.1" in command
    (port,) = [word.removeprefix("--port=") for word in command if word.startswith("--port=")]
    asked = manifests.container("bursar-worker/worker").environment(VALUES)["BURSAR_ENGINE_URL"]
    assert asked == f"http://127.0.0.1:{port}/v1"
    assert manifests.compose()["services"]["worker"]["environment"]["BURSAR_ENGINE_URL"] == asked


def test_its_key_is_no_word_of_its_command_line(command: list[str]) -> None:
    assert not any("api-key" in word for word in command)


def test_the_supervisor_of_a_host_relies_on_the_same() -> None:
    source = (ROOT / vllm.__file__).read_text()
    for word in WANTED:
        assert all(f'"{part}"' in source for part in word.split("="))


def test_the_image_is_of_the_release_that_is_pinned() -> None:
    pinned = next(
        line.split("==")[1].split()[0]
        for line in (ROOT / "requirements" / "engine-gpu.in").read_text().splitlines()
        if line.startswith("vllm==")
    )
    assert manifests.compose()["services"]["engine"]["image"] == f"vllm/vllm-openai:v{pinned}"
    (kustomization,) = manifests.documents(manifests.KUBERNETES / "base" / "kustomization.yaml")
    tags = {image["name"]: image["newTag"] for image in kustomization["images"]}
    assert tags["vllm/vllm-openai"] == f"v{pinned}"
    assert set(tags) == {one.spec["image"] for one in manifests.containers()}
