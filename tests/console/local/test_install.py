"""The entry script must speak even on a Python that is too old for everything else."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from console.local import install
from console.local.places import ROOT

SCRIPT = Path(install.__file__)


@pytest.mark.parametrize("version", [(3, 6), (3, 10), (3, 15), (4, 0)])
def test_it_refuses_an_unsupported_python_in_one_line(version, capsys):
    with pytest.raises(SystemExit) as stop:
        install.require_python(version)
    assert stop.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"Python {version[0]}.{version[1]} is not supported" in line


@pytest.mark.parametrize("version", [(3, 11), (3, 14)])
def test_it_accepts_the_supported_pythons(version):
    install.require_python(version)


def test_it_parses_on_pythons_that_are_too_old():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 5))


def test_it_refuses_a_python_without_venv(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(SystemExit):
        install.require_modules()
    assert "apt-get install python3-venv" in capsys.readouterr().err


def test_it_needs_nothing_but_the_standard_library():
    """-S leaves site-packages out, as on a machine where nothing is installed yet."""
    code = f"import sys; sys.path[0] = {str(ROOT / 'platform')!r}; import console.local.installation"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
