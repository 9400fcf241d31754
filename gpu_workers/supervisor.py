"""Runs the engine that this host's settings name: `python -m gpu_workers.supervisor`."""

from __future__ import annotations

import asyncio
import signal
import sys
from urllib.parse import urlsplit

from gpu_workers.engines.process import EngineProcess, passed_on_environment
from gpu_workers.engines.vllm import vllm_process
from gpu_workers.logging import configure_logging
from gpu_workers.settings import SettingsError, WorkerSettings, load


def simulated_process(settings: WorkerSettings) -> EngineProcess:
    port = urlsplit(settings.engine_url).port
    command = [sys.executable, "-m", "gpu_workers.engines.simulated", "--port", str(port)]
    command += ["--model", settings.engine_model, "--context-length", str(settings.context_length)]
    command += ["--max-running", str(settings.max_running)]
    environment = passed_on_environment() | {"BURSAR_ENGINE_API_KEY": settings.engine_api_key}
    return EngineProcess(command, environment, f"http://127.0.0.1:{port}/health")


def engine_process(settings: WorkerSettings) -> EngineProcess:
    """Raises `SettingsError`: an attached server is not ours to run."""
    match settings.engine:
        case "vllm":
            return vllm_process(settings)
        case "simulated":
            return simulated_process(settings)
        case "openai" | "sagemaker":
            raise SettingsError("An attached server or endpoint is run by its owner, not by this supervisor.")


async def supervise(settings: WorkerSettings) -> None:
    process = engine_process(settings)
    runner = asyncio.create_task(process.run())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await asyncio.wait({runner, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    await process.stop()
    await runner


def main() -> int:
    configure_logging()
    try:
        settings = load()
        asyncio.run(supervise(settings))
    except SettingsError as error:
        print(f"engine: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
