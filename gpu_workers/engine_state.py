"""Which of a deployment's engines is active on this host: a file that its supervisor writes and its workers read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
from msgspec import Struct

from gpu_workers.settings import SettingsError


class EngineState(Struct, frozen=True):
    """`url` is empty while no engine may take requests. `epoch` counts how often another became active.

    `model_checksum` is that of the model's directory where it was verified before the engines were started.
    """

    url: str = ""
    epoch: int = 0
    model_checksum: str = ""


def state_file(directory: Path, deployment: str) -> Path:
    """In a directory that is made where it is missing, and refused where others could say where prompts go.

    Raises `SettingsError`.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise SettingsError(f"BURSAR_RUN_DIRECTORY cannot be used: {error.strerror}.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise SettingsError("BURSAR_RUN_DIRECTORY must be a directory of this user that nobody else may write to.")
    return directory / f"{deployment}.engine.json"


def write_state(file: Path, state: EngineState) -> None:
    """Readers see the old state or the new one, and never a part."""
    temporary = file.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(state))
    temporary.replace(file)


class ActiveEngine:
    """Where requests go now. Without a file it is always `url`: an engine that somebody else looks after."""

    def __init__(self, url: str, file: Path | None = None) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._state = EngineState(url, 0) if file is None else EngineState()

    def current(self) -> EngineState:
        """One look at the file's time, and a read where that has changed."""
        if self._file is None:
            return self._state
        try:
            status = os.stat(self._file)
            seen = (status.st_mtime_ns, status.st_ino)
            if seen != self._seen:
                self._state = msgspec.json.decode(self._file.read_bytes(), type=EngineState)
                self._seen = seen
        except (OSError, msgspec.MsgspecError):
            self._state, self._seen = EngineState(), None
        return self._state
