"""Virtual environments built from pinned lists. A stamp, written last, says that one is complete."""

import hashlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from console.local import pip
from console.local.errors import CannotRunError
from console.local.places import ROOT
from console.local.terminal import Progress
from console.local.workspace import Workspace

GB = 1_000_000_000


def require_space(needed_gb: float) -> None:
    """Refuse to begin what the disk has no room for."""
    free_gb = shutil.disk_usage(ROOT).free / GB
    if free_gb < needed_gb:
        raise CannotRunError(
            f"not enough disk space in {ROOT}: {needed_gb:.1f} GB are needed, {free_gb:.1f} GB are free"
        )


def fingerprint(directory: Path, lists: Sequence[str], kind: str = "") -> str:
    """What an environment depends on: its place, the Python and the pinned lists."""
    digest = hashlib.sha256(f"{directory}|{sys.version}|{kind}".encode())
    for name in lists:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def python_of(directory: Path) -> Path:
    return directory / "bin" / "python"


def has_stamp(directory: Path, part: str, value: str) -> bool:
    """Whether `part` of the environment was completed from exactly these lists."""
    try:
        return _stamp(directory, part).read_text() == value
    except OSError:
        return False


def write_stamp(directory: Path, part: str, value: str) -> None:
    """Record that `part` of the environment is complete; a stamp is never half-written."""
    partial = _stamp(directory, part + ".partial")
    partial.write_text(value)
    partial.replace(_stamp(directory, part))


def create(directory: Path, progress: Progress, workspace: Workspace) -> None:
    """Make an empty environment in place of whatever is there. Raises CannotRunError."""
    for stamp in directory.glob("*.complete"):
        stamp.unlink()  # first of all: a kill during the removal must not leave a stamp on half an environment
    command = [sys.executable, "-m", "venv", "--clear", str(directory)]
    pip.run_logged(command, progress, workspace, f"a virtual environment cannot be created in {directory}")


def _stamp(directory: Path, part: str) -> Path:
    return directory / f"{part}.complete"


@dataclass(frozen=True)
class PackageSet:
    """One pinned list in .venv: the platform itself, or an addition to it."""

    title: str
    part: str
    pinned: str
    expectation: str
    needs_gb: float
    addition: bool = False

    directory: Path = ROOT / ".venv"

    @property
    def python(self) -> Path:
        return python_of(self.directory)

    def is_complete(self) -> bool:
        return has_stamp(self.directory, self.part, self._fingerprint())

    def ensure(self, workspace: Workspace) -> None:
        """Install what is missing. Raises CannotRunError and then leaves no stamp."""
        if self.is_complete():
            return
        require_space(self.needs_gb)
        progress = Progress(self.title, self.expectation)
        if not self.addition:
            create(self.directory, progress, workspace)
        pip.install(self.python, ["--require-hashes", "-r", str(ROOT / self.pinned)], progress, workspace)
        if not self.addition:
            self._add_source_roots()
        write_stamp(self.directory, self.part, self._fingerprint())
        progress.done()

    def _fingerprint(self) -> str:
        lists = ["requirements.txt", self.pinned] if self.addition else [self.pinned]
        return fingerprint(self.directory, lists)

    def _add_source_roots(self) -> None:
        """`platform/` is a source root and no package, so both roots go on the path by name."""
        (packages,) = self.directory.glob("lib/python3*/site-packages")
        (packages / "bursar.pth").write_text(f"{ROOT / 'platform'}\n{ROOT}\n")


PLATFORM = PackageSet("Installing the platform into .venv", "platform", "requirements.txt", "about 1 min", 2.0)
TESTS = PackageSet(
    "Installing the tests' tools into .venv", "tests", "requirements/dev.txt", "about 20 s", 0.7, addition=True
)
