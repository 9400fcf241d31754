"""How TensorRT-LLM is started: `trtllm-serve` on loopback, with the options of its published command line.

It knows no key, so that whoever is on the host may ask it, and neither priorities nor answers that are continued: it is
spoken to as any OpenAI-compatible server.
"""

from __future__ import annotations

from pathlib import Path

from gpu_workers.engines.process import EngineCommand, passed_on_environment
from gpu_workers.settings import SettingsError, WorkerSettings


def tensorrt_command(settings: WorkerSettings, port: int) -> EngineCommand:
    """Raises `SettingsError` where the engine's Python or the model's path is not given, or it should sleep."""
    if not settings.engine_python or not settings.model_path:
        raise SettingsError("BURSAR_ENGINE_PYTHON and BURSAR_MODEL_PATH must be set for the TensorRT engine.")
    if settings.shadow_sleeps:
        raise SettingsError("BURSAR_ENGINE_SHADOW cannot be sleeping: only vLLM's engines sleep.")
    environment = passed_on_environment() | {
        "TRTLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if settings.devices:
        environment["CUDA_VISIBLE_DEVICES"] = settings.devices
    # The last of two equal options counts: what the version asks for cannot move the engine off loopback.
    command = [
        str(Path(settings.engine_python).with_name("trtllm-serve")),
        settings.model_path,
        *settings.engine_arguments,
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--max_seq_len", str(settings.context_length)),
    ]
    if settings.max_running:
        command += ["--max_batch_size", str(settings.max_running)]
    return EngineCommand(command, environment, f"http://127.0.0.1:{port}", settings.cores)
