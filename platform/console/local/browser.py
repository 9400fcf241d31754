"""Debian's Chromium for the browser tests, where we may install it."""

import os
import shutil

from console.local import pip
from console.local.errors import CannotRunError
from console.local.terminal import Progress, say
from console.local.workspace import Workspace

NAMES = ("chromium", "chromium-browser", "google-chrome")


def is_present() -> bool:
    return any(shutil.which(name) for name in NAMES)


def ensure(workspace: Workspace) -> None:
    """Install Chromium where it is absent and we are root on Debian; say so where the tests will skip."""
    if is_present():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say("no Chromium here and no right to install one: the browser tests will be skipped")
        return
    progress = Progress("Installing Chromium for the browser tests", "about 1 min")
    packages = ["chromium", "fonts-dejavu-core"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            command = ["apt-get", "--quiet", *arguments]
            pip.run_logged(command, progress, workspace, "Chromium could not be installed", environment)
    except CannotRunError as failure:
        say(f"{failure}: the browser tests will be skipped")
        return
    progress.done()
