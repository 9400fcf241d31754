"""Locks that keep two runs, or two installations, out of one checkout. The kernel drops them when a process ends."""

import fcntl
import os
from pathlib import Path

from console.local.errors import CannotRunError
from console.local.places import private_directory


def hold(path: Path, refusal: str) -> int:
    """Take the lock `path` for the life of this process and return its descriptor. Raises CannotRunError."""
    private_directory(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise CannotRunError(refusal) from None
    return descriptor
