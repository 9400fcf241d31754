"""How vLLM is started: its OpenAI server on loopback, with the arguments that this platform relies on."""

from __future__ import annotations

from gpu_workers.engines.process import EngineCommand, passed_on_environment
from gpu_workers.settings import SettingsError, WorkerSettings


def vllm_command(settings: WorkerSettings, port: int) -> EngineCommand:
    """Raises `SettingsError` where the engine's Python or the model's path is not given."""
    if not settings.engine_python or not settings.model_path:
        raise SettingsError("BURSAR_ENGINE_PYTHON and BURSAR_MODEL_PATH must be set for the vLLM engine.")
    environment = passed_on_environment() | {
        "VLLM_API_KEY": settings.engine_api_key,  # not on the command line, which every local user can read
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; only the CPU build reads it
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [
        settings.engine_python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        # The last of two equal options counts: what the version asks for cannot move the engine off loopback.
        *settings.engine_arguments,
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--model", settings.model_path, "--served-model-name", settings.engine_model),
        *("--max-model-len", str(settings.context_length)),
        *("--scheduling-policy", "priority"),
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--enforce-eager",
        "--disable-uvicorn-access-log",
        "--no-enable-log-requests",
    ]
    if settings.max_running:
        command += ["--max-num-seqs", str(settings.max_running)]
    if settings.devices:
        environment["CUDA_VISIBLE_DEVICES"] = settings.devices
    if settings.shadow_sleeps:
        command.append("--enable-sleep-mode")
        environment["VLLM_SERVER_DEV_MODE"] = "1"  # where /sleep and /wake_up are; on loopback, as all of it
    return EngineCommand(command, environment, f"http://127.0.0.1:{port}", settings.cores)
