"""Where an installation writes what it says and what it needs for the moment."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.local.places import private_directory


@dataclass(frozen=True)
class Workspace:
    """A log that stays and a temporary directory that goes."""

    log: Path
    temporary: Path


@contextmanager
def workspace_in(var: Path) -> Iterator[Workspace]:
    """Both inside the checkout, so that only one disk has to have room."""
    temporary = var / "install.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    log = private_directory(var / "log") / "install.log"
    log.unlink(missing_ok=True)
    try:
        yield Workspace(log, private_directory(temporary))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
