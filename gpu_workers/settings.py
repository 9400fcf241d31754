"""A worker host's settings, from the environment."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

EngineKind = Literal["vllm", "simulated", "openai", "sagemaker", "tensorrt"]
# Those that a supervisor of ours runs as processes.
SUPERVISED = ("vllm", "simulated", "tensorrt")
MAX_ARGUMENTS, MAX_ARGUMENT_LENGTH = 64, 500


class SettingsError(ValueError):
    """A setting is missing or malformed; the message names the variable, never its value."""


@dataclass(frozen=True)
class WorkerSettings:
    """`max_running` is how many requests the engine works on at once; 0 leaves that to the engine.

    `supervised` engines tell in `run_directory` which is active. A `shadow` is a second engine that stands by, asleep
    where `shadow_sleeps`. `silent_s`, `stuck_s` and `drain_s` are gpu_workers.engines.slots.Patience.
    """

    valkey_url: str = field(repr=False)
    seal_key: bytes = field(repr=False)
    deployment: str
    engine: EngineKind
    engine_url: str
    engine_api_key: str = field(repr=False)
    engine_model: str
    engine_python: str
    model_path: str
    context_length: int
    max_running: int
    worker: str
    run_directory: Path = Path()
    supervised: bool = False
    shadow: bool = False
    shadow_sleeps: bool = False
    cores: frozenset[int] = frozenset()
    devices: str = ""
    silent_s: float = 10
    stuck_s: float = 60
    drain_s: float = 5
    zone: str = ""
    sagemaker_region: str = ""
    sagemaker_endpoint: str = ""
    sagemaker_component: str = ""
    engine_profile: str = ""
    model_checksum: str = ""
    engine_arguments: tuple[str, ...] = ()


def _required(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise SettingsError(f"{name} is not set.")
    return value


def _whole_number(name: str, default: int, at_least: int = 0) -> int:
    try:
        number = int(os.environ.get(name, "") or default)
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise SettingsError(f"{name} must be a whole number, {at_least} or more.")
    return number


def default_run_directory() -> Path:
    """Of this user alone: what lies there says where requests go."""
    return Path(tempfile.gettempdir()) / f"bursar-{os.getuid()}"


def _cores() -> frozenset[int]:
    """The cores in BURSAR_ENGINE_CORES, written as `0-3,8`; none for all."""
    cores: set[int] = set()
    try:
        for part in filter(None, os.environ.get("BURSAR_ENGINE_CORES", "").split(",")):
            first, _, last = part.partition("-")
            cores |= set(range(int(first), int(last or first) + 1))
    except ValueError:
        raise SettingsError("BURSAR_ENGINE_CORES must look like 0-3,8.") from None
    if not cores <= os.sched_getaffinity(0):
        raise SettingsError("BURSAR_ENGINE_CORES names cores that this process may not use.")
    return frozenset(cores)


def _engine_kind() -> EngineKind:
    value = os.environ.get("BURSAR_ENGINE", "vllm")
    for kind in get_args(EngineKind):
        if value == kind:
            return kind  # type: ignore[no-any-return]
    raise SettingsError(f"BURSAR_ENGINE must be one of {', '.join(get_args(EngineKind))}.")


def _of_engine(name: str, *, sagemaker: bool) -> str:
    """Required where the engine is on SageMaker, or where it is not; else as it is."""
    return _required(name) if (_engine_kind() == "sagemaker") is sagemaker else os.environ.get(name, "")


def _engine_arguments() -> tuple[str, ...]:
    """What the model version has its engine started with, besides what this platform relies on."""
    try:
        found = json.loads(os.environ.get("BURSAR_ENGINE_ARGUMENTS", "") or "[]")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) > MAX_ARGUMENTS or not all(map(_is_argument, found)):
        raise SettingsError('BURSAR_ENGINE_ARGUMENTS must be a list such as ["--max-num-seqs", "64"].')
    return tuple(found)


def _is_argument(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ARGUMENT_LENGTH and value.isprintable()


def _model_checksum() -> str:
    found = os.environ.get("BURSAR_MODEL_CHECKSUM", "").strip().lower()
    if found and (len(found) != 64 or set(found) - set("0123456789abcdef")):
        raise SettingsError("BURSAR_MODEL_CHECKSUM must be 64 hexadecimal digits.")
    return found


def seal_key() -> bytes:
    """The key that web processes and workers share. Raises `SettingsError`."""
    try:
        key = bytes.fromhex(_required("BURSAR_SEAL_KEY"))
    except ValueError:
        key = b""
    if len(key) != 32:
        raise SettingsError("BURSAR_SEAL_KEY must be 64 hexadecimal digits.")
    return key


def load() -> WorkerSettings:
    """Raises `SettingsError`."""
    shadow = os.environ.get("BURSAR_ENGINE_SHADOW", "") or "0"
    if shadow not in ("0", "1", "sleeping"):
        raise SettingsError("BURSAR_ENGINE_SHADOW must be 0, 1 or sleeping.")
    return WorkerSettings(
        valkey_url=_required("BURSAR_VALKEY_URL"),
        seal_key=seal_key(),
        deployment=_required("BURSAR_DEPLOYMENT"),
        engine=_engine_kind(),
        engine_url=_of_engine("BURSAR_ENGINE_URL", sagemaker=False).rstrip("/"),
        engine_api_key=os.environ.get("BURSAR_ENGINE_API_KEY", ""),
        engine_model=_required("BURSAR_ENGINE_MODEL"),
        engine_python=os.environ.get("BURSAR_ENGINE_PYTHON", ""),
        model_path=os.environ.get("BURSAR_MODEL_PATH", ""),
        context_length=_whole_number("BURSAR_CONTEXT_LENGTH", 4096, at_least=1),
        max_running=_whole_number("BURSAR_ENGINE_MAX_RUNNING", 0),
        sagemaker_region=_of_engine("BURSAR_SAGEMAKER_REGION", sagemaker=True),
        sagemaker_endpoint=_of_engine("BURSAR_SAGEMAKER_ENDPOINT", sagemaker=True),
        sagemaker_component=os.environ.get("BURSAR_SAGEMAKER_COMPONENT", ""),
        engine_profile=os.environ.get("BURSAR_ENGINE_PROFILE", ""),
        model_checksum=_model_checksum(),
        engine_arguments=_engine_arguments(),
        worker=f"{socket.gethostname()}-{os.getpid()}",
        run_directory=Path(os.environ.get("BURSAR_RUN_DIRECTORY", "") or default_run_directory()),
        supervised=os.environ.get("BURSAR_ENGINE_SUPERVISED", "1") == "1" and _engine_kind() in SUPERVISED,
        shadow=shadow in ("1", "sleeping"),
        shadow_sleeps=shadow == "sleeping",
        cores=_cores(),
        devices=os.environ.get("BURSAR_ENGINE_DEVICES", ""),
        silent_s=_whole_number("BURSAR_ENGINE_SILENT_S", 10, at_least=1),
        stuck_s=_whole_number("BURSAR_ENGINE_STUCK_S", 60, at_least=1),
        zone=os.environ.get("BURSAR_ZONE", "")[:40],
        drain_s=_whole_number("BURSAR_ENGINE_DRAIN_S", 5),
    )
