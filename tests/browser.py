"""Debian's Chromium for tests of pages: found, or installed where that is possible, or a skip that says so."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    *("--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A headless browser with an empty profile. Skips the test where there is none."""
    path = _find() or _install()
    if path is None:
        pytest.skip("no Chromium is installed, and installing it needs root and apt-get")
    # Chromium's sandbox refuses to run as root.
    arguments = [*QUIET, "--no-sandbox"] if os.geteuid() == 0 else QUIET
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def _find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _install() -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium", "fonts-liberation"]):
        command = ["apt-get", "--quiet", *arguments]
        if subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False).returncode:
            return None
    return _find()
