"""pip as a child process: progress while it works, and one clear sentence when it fails."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from console.local.errors import CannotRunError
from console.local.processes import as_child
from console.local.terminal import Progress
from console.local.workspace import Workspace

# What pip prints, and what that means for the person at the terminal; the first match counts.
FAILURES = [
    (r"No space left on device|Errno 28|Disk quota exceeded", "the disk is full: free some space and run again"),
    (r"connection broken by", "the package index cannot be reached: check the network and run again"),
    (
        r"Max retries|Connection(?:Error| broken| reset)|Read timed out|IncompleteRead|ProtocolError|SSLError|"
        r"HTTP error \d+|incomplete-download|BadZipFile|has an invalid wheel|content-length",
        "a download broke off: check the network and run again (finished downloads are kept)",
    ),
]
UNAVAILABLE = [
    (
        r"DO NOT MATCH THE HASHES",
        "a downloaded package is not the one that was pinned (damaged or altered): run again, and if it stays, do not"
        " use that package index",
    ),
    (
        r"No matching distribution found for (\S+)",
        "the package index does not offer {} for this machine and this Python",
    ),
    # With a constraints file pip says it in this way.
    (r"Cannot install (\S+) because", "pip's settings and the package index do not allow {}"),
]


class PackageUnavailableError(CannotRunError):
    """No index has the pinned build of a package."""


def explain(output: str, otherwise: str = "pip failed") -> CannotRunError:
    """The error that the output of a failed installation stands for."""
    for pattern, meaning in FAILURES:
        if re.search(pattern, output):
            return CannotRunError(meaning)
    for pattern, meaning in UNAVAILABLE:
        if found := re.search(pattern, output):
            return PackageUnavailableError(meaning.format(*found.groups()))
    errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
    return CannotRunError(f"{otherwise}: {errors[-1].removeprefix('ERROR: ')}" if errors else otherwise)


def install(python: Path, arguments: Sequence[str], progress: Progress, workspace: Workspace) -> None:
    """Install into the environment that `python` belongs to. Raises CannotRunError with what went wrong."""
    run(python, ["install", *arguments], progress, workspace)


def run(python: Path, arguments: Sequence[str], progress: Progress, workspace: Workspace) -> None:
    """Run pip of the environment that `python` belongs to. Raises CannotRunError with what went wrong."""
    flags = ["--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    command = [str(python), "-m", "pip", arguments[0], *flags, *arguments[1:]]
    environment = {**os.environ, "TMPDIR": str(workspace.temporary), "PIP_USER": "0"}
    environment.pop("PYTHONPATH", None)
    run_logged(command, progress, workspace, "pip failed", environment)


def run_logged(
    command: list[str],
    progress: Progress,
    workspace: Workspace,
    failure: str,
    environment: dict[str, str] | None = None,
) -> None:
    """Run `command` into the log with progress lines. Raises CannotRunError with what its output means."""
    with open(os.open(workspace.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        start = file.tell()
        process = subprocess.Popen(
            as_child(command, signal.SIGTERM),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        _wait(process, progress, workspace.log)
    if process.returncode != 0:
        error = explain(workspace.log.read_bytes()[start:].decode(errors="replace"), failure)
        raise type(error)(f"{error} (log: {workspace.log})")


def _wait(process: "subprocess.Popen[bytes]", progress: Progress, log: Path) -> None:
    """Wait for the end of `process`, saying now and then what its log says it is at."""
    try:
        while process.poll() is None:
            progress.tick(_latest(log))
            time.sleep(0.2)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _latest(log: Path) -> str:
    """What pip is at, from its log's last telling line."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4000))
        lines = file.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        if found := re.match(r"\s*(Collecting|Downloading|Using cached|Installing collected)\s+(\S+)", line):
            name = re.split(r"[=-]", found[2].rpartition("/")[2])[0]
            return "unpacking" if found[1] == "Installing collected" else f"at {name}"
    return ""
