"""What must hold of the checkout itself."""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.stack import ROOT


def test_platform_is_a_source_root_and_not_a_package() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert Path(platform.__file__).is_relative_to(sysconfig.get_paths()["stdlib"])


def test_the_fixed_names_stand_at_the_top() -> None:
    fixed = ["manage.py", "platform", "inference", "compliance", "dashboards", "gpu_workers", "tests"]
    assert [name for name in [*fixed, "requirements.txt", "README.md"] if not (ROOT / name).exists()] == []


def test_migrations_match_the_models() -> None:
    command = [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_code_that_a_caller_can_meet_is_documented() -> None:
    from inference.errors import CODES

    text = (ROOT / "docs" / "api.md").read_text()
    assert [code for code in CODES if f"`{code}`" not in text] == []
