"""vLLM in an environment of its own, .venv-engine: for the GPU where there is one, for the CPU otherwise."""

import shutil
import subprocess

from console.local import environments, pip
from console.local.places import ROOT
from console.local.terminal import Progress, say
from console.local.workspace import Workspace

DIRECTORY = ROOT / ".venv-engine"
PYTHON = environments.python_of(DIRECTORY)
GPU_LIST = "requirements/engine-gpu.txt"
CPU_LIST = "requirements/engine-cpu.txt"
CPU_TORCH_LIST = "requirements/torch-cpu.txt"
ANY_TORCH_LIST = "requirements/torch.txt"


def has_gpu() -> bool:
    """Whether the NVIDIA driver's own tool lists a GPU."""
    if not shutil.which("nvidia-smi"):
        return False
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listing.returncode == 0 and "GPU " in listing.stdout


def is_complete() -> bool:
    return environments.has_stamp(DIRECTORY, "engine", _fingerprint(has_gpu()))


def ensure(workspace: Workspace) -> None:
    """Install vLLM where it is missing. Raises CannotRunError and then leaves no stamp."""
    gpu = has_gpu()
    if environments.has_stamp(DIRECTORY, "engine", _fingerprint(gpu)):
        return
    environments.require_space(20 if gpu else 5)
    expectation = "for a GPU, several GB: 5 to 15 min" if gpu else "for the CPU: about 2 min"
    progress = Progress("Installing vLLM into .venv-engine", expectation)
    environments.create(DIRECTORY, progress, workspace)
    if gpu:
        _install(GPU_LIST, progress, workspace)
    else:
        _install_torch(progress, workspace)
        _install(CPU_LIST, progress, workspace)
    environments.write_stamp(DIRECTORY, "engine", _fingerprint(gpu))
    progress.done()


def _install_torch(progress: Progress, workspace: Workspace) -> None:
    try:
        _install(CPU_TORCH_LIST, progress, workspace)
    except pip.PackageUnavailableError:
        say("torch's CPU build is not offered for this machine: taking the ordinary build, 3 GB more to download")
        environments.require_space(12)
        _install(ANY_TORCH_LIST, progress, workspace)


def _install(pinned: str, progress: Progress, workspace: Workspace) -> None:
    # The lists are complete; resolving again would bring back the packages that were left out on purpose.
    pip.install(PYTHON, ["--no-deps", "--require-hashes", "-r", str(ROOT / pinned)], progress, workspace)


def _fingerprint(gpu: bool) -> str:
    lists = [GPU_LIST] if gpu else [CPU_LIST, CPU_TORCH_LIST, ANY_TORCH_LIST]
    return environments.fingerprint(DIRECTORY, lists, "gpu" if gpu else "cpu")
