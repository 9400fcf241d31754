"""The platform's image: what it is given is enough to run from, and nothing more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY
from tests.stack import ROOT

DOCKERFILE = (DEPLOY / "image" / "Dockerfile").read_text()
_UNCOMMENTED = "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#"))
LINES = re.sub(r"\\\n\s*", " ", _UNCOMMENTED).splitlines()  # one for each instruction
_COPIES = [found[1] for line in LINES if (found := re.match(r"COPY (?!--from)(.+) \S+\Z", line))]
COPIED = [source for copy in _COPIES for source in copy.split()]
IGNORE = (DEPLOY / "image" / "Dockerfile.dockerignore").read_text().splitlines()


def test_all_that_is_copied_is_there_and_every_package_of_ours_is_copied() -> None:
    assert [source for source in COPIED if not (ROOT / source).exists()] == []
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    assert {"platform" if name == "console" else name for name in packages} <= set(COPIED)


def test_the_context_has_what_is_copied_and_nothing_else() -> None:
    rules = [line for line in IGNORE if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == set(COPIED)


def test_packages_are_installed_by_their_hashes_and_it_runs_as_nobody_special() -> None:
    installs = [line for line in LINES if "pip install" in line]
    assert len(installs) == 1
    assert "--require-hashes" in installs[0]
    assert [line for line in LINES if line.startswith("USER")] == ["USER 10001:10001"]
    assert LINES.index("USER 10001:10001") > max(i for i, line in enumerate(LINES) if line.startswith("RUN"))
    assert not any(line.startswith("ADD") for line in LINES)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's /app: the files that are copied, where nobody may write."""
    app = tmp_path_factory.mktemp("image") / "app"
    app.mkdir()
    for source in COPIED:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, app / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, app / source)
    return app


@pytest.mark.parametrize(
    "command",
    [
        ["manage.py", "check"],
        ["-c", "import console.celery, django; django.setup(); console.celery.app.loader.import_default_modules()"],
        ["-c", "import console.asgi"],
        ["-m", "celery", "-A", "gpu_workers.app", "report"],
        ["-m", "gpu_workers.join", "--help"],
        ["-c", "import gpu_workers.readiness"],
    ],
    ids=["manage", "scheduler", "web", "worker", "join", "probe"],
)
def test_its_files_are_enough_for_every_process(command: list[str], image: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BURSAR_", "PYTHON"))}
    environment |= dict(re.findall(r"(PYTHON\w+|DJANGO_\w+)=(\S+)", DOCKERFILE))
    environment["PYTHONPATH"] = environment["PYTHONPATH"].replace("/app", str(image))
    environment["BURSAR_SECRET_KEY"] = "s" * 40
    done = subprocess.run([sys.executable, *command], cwd=image, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stderr
