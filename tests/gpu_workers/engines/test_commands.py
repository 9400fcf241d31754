"""What engines are started with: on loopback whatever the version asks for, and with the options that there are."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_workers.engines.openai import OpenAIEngine
from gpu_workers.runner import active_engine, build_engine
from gpu_workers.settings import SettingsError, load
from gpu_workers.supervisor import engine_commands

# Options of `trtllm-serve`, as its documentation lists them (TensorRT-LLM 1.2, commands/trtllm-serve).
PUBLISHED = {
    *("--tokenizer", "--host", "--port", "--backend", "--log_level", "--max_beam_width", "--max_batch_size"),
    *("--max_num_tokens", "--max_seq_len", "--tensor_parallel_size", "--tp_size", "--pipeline_parallel_size"),
    *("--pp_size", "--moe_expert_parallel_size", "--ep_size", "--gpus_per_node", "--free_gpu_memory_fraction"),
    *("--kv_cache_free_gpu_memory_fraction", "--trust_remote_code", "--revision", "--config", "--reasoning_parser"),
    *("--extra_llm_api_options", "--enable_chunked_prefill", "--chat_template"),
}
SETTINGS = {
    "BURSAR_VALKEY_URL": "unix:///none",
    "BURSAR_SEAL_KEY": "0" * 64,
    "BURSAR_DEPLOYMENT": "d",
    "BURSAR_ENGINE_URL": "http://127.0.0.1:8123/v1",
    "BURSAR_ENGINE_MODEL": "m",
    "BURSAR_ENGINE_API_KEY": "hidden",
    "BURSAR_ENGINE_PYTHON": "/engine/bin/python",
    "BURSAR_MODEL_PATH": "/models/m",
    "BURSAR_CONTEXT_LENGTH": "8192",
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    def _given(engine: str, **more: str) -> Any:
        for name, value in {**SETTINGS, "BURSAR_ENGINE": engine, **more}.items():
            monkeypatch.setenv(name, value)
        return load()

    return _given


def test_tensorrt_is_started_with_published_options_alone(given: Any) -> None:
    settings = given("tensorrt", BURSAR_ENGINE_MAX_RUNNING="64", BURSAR_ENGINE_DEVICES="0,1", BURSAR_ENGINE_SHADOW="1")
    active, standby = engine_commands(settings)
    assert list(active.command[:2]) == ["/engine/bin/trtllm-serve", "/models/m"]
    options = dict(zip(active.command[2::2], active.command[3::2], strict=True))
    assert options == {
        "--host": "127.0.0.1",
        "--port": "8123",
        "--max_seq_len": "8192",
        "--max_batch_size": "64",
    }
    assert set(options) <= PUBLISHED
    assert active.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert standby.url != active.url
    assert "hidden" not in " ".join([*active.command, *active.environment.values()])


@pytest.mark.parametrize(
    ("engine", "arguments", "kept"),
    [
        ("tensorrt", '["--tp_size", "8", "--host", "0.0.0.0"]', ["--tp_size", "8"]),
        ("vllm", '["--tensor-parallel-size", "8", "--host", "0.0.0.0"]', ["--tensor-parallel-size", "8"]),
    ],
)
def test_the_versions_arguments_are_applied_and_do_not_move_it_off_loopback(
    given: Any, engine: str, arguments: str, kept: list[str]
) -> None:
    command = list(engine_commands(given(engine, BURSAR_ENGINE_ARGUMENTS=arguments))[0].command)
    at = command.index(kept[0])
    assert command[at : at + 2] == kept
    # Both command lines take the last of two.
    last = len(command) - 1 - command[::-1].index("--host")
    assert command[last + 1] == "127.0.0.1"


@pytest.mark.parametrize(
    "arguments", ["--x", "{}", "[1]", '[""]', '["a\\nb"]', "[" * 100_000, '["' + "a" * 501 + '"]', str(["a"] * 65)]
)
def test_arguments_that_are_none_are_refused_by_their_variable(given: Any, arguments: str) -> None:
    with pytest.raises(SettingsError, match="BURSAR_ENGINE_ARGUMENTS must be a list"):
        given("tensorrt", BURSAR_ENGINE_ARGUMENTS=arguments)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"BURSAR_ENGINE_PYTHON": ""}, "BURSAR_ENGINE_PYTHON and BURSAR_MODEL_PATH must be set"),
        ({"BURSAR_MODEL_PATH": ""}, "BURSAR_ENGINE_PYTHON and BURSAR_MODEL_PATH must be set"),
        ({"BURSAR_ENGINE_SHADOW": "sleeping"}, "only vLLM's engines sleep"),
    ],
)
def test_what_tensorrt_cannot_be_started_with_is_said(given: Any, more: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        engine_commands(given("tensorrt", **more))


@pytest.mark.parametrize(("engine", "extended"), [("tensorrt", False), ("vllm", True), ("openai", False)])
def test_only_vllm_is_spoken_to_with_its_extensions(given: Any, tmp_path: Any, engine: str, extended: bool) -> None:
    settings = given(engine, BURSAR_RUN_DIRECTORY=str(tmp_path / "run"))
    built = build_engine(settings, active_engine(settings))
    assert isinstance(built, OpenAIEngine)
    assert built.takes_priorities is extended
    assert settings.supervised is (engine != "openai")
