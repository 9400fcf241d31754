"""Runs the engines that this host's settings name: `python -m gpu_workers.supervisor`."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from gpu_workers.connecting import connect
from gpu_workers.engine_events import EventSender
from gpu_workers.engine_state import state_file
from gpu_workers.engines.process import EngineCommand, passed_on_environment
from gpu_workers.engines.slots import Patience, Slots
from gpu_workers.engines.tensorrt import tensorrt_command
from gpu_workers.engines.vllm import vllm_command
from gpu_workers.logging import configure_logging
from gpu_workers.model_directory import verify
from gpu_workers.settings import SettingsError, WorkerSettings, load


def simulated_command(settings: WorkerSettings, port: int) -> EngineCommand:
    command = [sys.executable, "-m", "gpu_workers.engines.simulated", "--port", str(port)]
    command += ["--model", settings.engine_model, "--context-length", str(settings.context_length)]
    command += ["--max-running", str(settings.max_running)]
    command += ["--profile", settings.engine_profile] if settings.engine_profile else []
    environment = passed_on_environment() | {"BURSAR_ENGINE_API_KEY": settings.engine_api_key}
    return EngineCommand(command, environment, f"http://127.0.0.1:{port}", settings.cores)


def engine_commands(settings: WorkerSettings) -> list[EngineCommand]:
    """The active engine and, where one is wanted, the one that stands by.

    Raises `SettingsError`: an attached server is not ours to run.
    """
    makers = {"vllm": vllm_command, "tensorrt": tensorrt_command, "simulated": simulated_command}
    if settings.engine not in makers:
        raise SettingsError("An attached server or endpoint is run by its owner, not by this supervisor.")
    port = urlsplit(settings.engine_url).port
    if port is None:
        raise SettingsError("BURSAR_ENGINE_URL must name a port.")
    ports = [port, _free_port()] if settings.shadow else [port]
    return [makers[settings.engine](settings, port) for port in ports]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def verified_model(settings: WorkerSettings) -> str:
    """The checksum of the model that the engines would read, where one is expected. Raises `SettingsError`."""
    if settings.engine not in ("vllm", "tensorrt"):
        return ""
    cache = state_file(settings.run_directory, settings.deployment).with_suffix(".digests")
    return verify(Path(settings.model_path), settings.model_checksum, cache)


async def supervise(settings: WorkerSettings, model_checksum: str) -> None:
    engines = engine_commands(settings)
    directory = settings.run_directory
    state = state_file(directory, settings.deployment)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    valkey = connect(settings.valkey_url)
    slots = Slots(
        engines,
        directory / f"{settings.deployment}.engine.lock",
        state,
        Patience(settings.silent_s, settings.stuck_s, settings.drain_s),
        sleeps=settings.shadow_sleeps,
        events=EventSender(valkey, settings.seal_key, settings.deployment, socket.gethostname()),
        model_checksum=model_checksum,
    )
    await slots.run(stop)
    await valkey.aclose()


def main() -> int:
    configure_logging()
    try:
        settings = load()
        engine_commands(settings)  # what is wrong with the settings is said before a model is read for minutes
        asyncio.run(supervise(settings, verified_model(settings)))
    except SettingsError as error:
        print(f"engine: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
