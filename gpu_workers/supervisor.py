"""Runs the engines that this host's settings name: `python -m gpu_workers.supervisor`."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from redis.asyncio import Redis

from gpu_workers.connecting import connect
from gpu_workers.engine_events import EventSender
from gpu_workers.engine_state import state_file
from gpu_workers.engines.process import EngineCommand, passed_on_environment
from gpu_workers.engines.slots import Patience, Slots
from gpu_workers.engines.tensorrt import tensorrt_command
from gpu_workers.engines.vllm import vllm_command
from gpu_workers.host_programs import free_port
from gpu_workers.logging import configure_logging
from gpu_workers.model_directory import verify
from gpu_workers.settings import SettingsError, WorkerSettings, load
from gpu_workers.specification import SpecificationRefused, read_specification

log = structlog.get_logger(__name__)


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
    ports = [port, free_port()] if settings.shadow else [port]
    return [makers[settings.engine](settings, port) for port in ports]


def verified_model(settings: WorkerSettings) -> str:
    """The checksum of the model that the engines would read, where one is expected. Raises `SettingsError`."""
    if settings.engine not in ("vllm", "tensorrt"):
        return ""
    cache = state_file(settings.run_directory, settings.deployment).with_suffix(".digests")
    return verify(Path(settings.model_path), settings.model_checksum, cache)


async def supervise(settings: WorkerSettings) -> None:
    engine_commands(settings)  # what is wrong with the settings is said before a model is read for minutes
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    checksum = await asyncio.to_thread(verified_model, settings)
    valkey = connect(settings.valkey_url)
    try:
        told = await _told(valkey, settings, stop)
        if told is not None:
            if told.model_checksum != settings.model_checksum:
                checksum = await asyncio.to_thread(verified_model, told)
            await _slots(told, engine_commands(told), valkey, checksum).run(stop)
    finally:
        await valkey.aclose()


async def _told(valkey: Redis, settings: WorkerSettings, stop: asyncio.Event) -> WorkerSettings | None:
    """The settings with what the catalog says of the model; a simulation takes none of it.

    None when `stop` comes before the broker answers. Raises `SpecificationRefused`.
    """
    if settings.engine == "simulated":
        return settings
    reading = asyncio.create_task(read_specification(valkey, settings.seal_key, settings.deployment))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not reading.done():
        reading.cancel()
        return None
    specification = reading.result()
    if specification is None:
        log.warning("specification_not_told", deployment=settings.deployment)
        return settings
    log.info("specification", model=specification.model, arguments=list(specification.arguments))
    # What the host says itself counts: it comes last, or is there already.
    return replace(
        settings,
        engine_arguments=(*specification.arguments, *settings.engine_arguments),
        model_checksum=settings.model_checksum or specification.checksum,
    )


def _slots(settings: WorkerSettings, engines: Sequence[EngineCommand], valkey: Redis, model_checksum: str) -> Slots:
    return Slots(
        engines,
        settings.run_directory / f"{settings.deployment}.engine.lock",
        state_file(settings.run_directory, settings.deployment),
        Patience(settings.silent_s, settings.stuck_s, settings.drain_s),
        sleeps=settings.shadow_sleeps,
        events=EventSender(valkey, settings.seal_key, settings.deployment, socket.gethostname()),
        model_checksum=model_checksum,
    )


def main() -> int:
    configure_logging()
    try:
        settings = load()
        asyncio.run(supervise(settings))
    except (SettingsError, SpecificationRefused) as error:
        print(f"engine: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except OSError as error:
        print(f"engine: it cannot be started: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
