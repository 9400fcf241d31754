"""vLLM for the GPU where the driver lists one, for the CPU otherwise, with whichever build of torch there is."""

import os

import pytest

from console.local import engine_environment, environments, pip
from console.local.workspace import workspace_in


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Puts an nvidia-smi of our own first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def install(script: str) -> None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    return install


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'", True),
        ("echo 'No devices were found'", False),
        ("echo 'GPU access blocked' >&2; exit 9", False),
    ],
)
def test_a_gpu_is_what_the_driver_lists(driver, script, found):
    driver(script)
    assert engine_environment.has_gpu() is found


def test_a_driver_that_cannot_be_run_is_no_gpu(driver, tmp_path):
    driver("true")
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF broken")
    assert engine_environment.has_gpu() is False


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The lists that would be installed, in order; the real ones take minutes and have their own test."""
    lists: list[str] = []
    monkeypatch.setattr(engine_environment, "DIRECTORY", tmp_path / "venv")
    monkeypatch.setattr(environments, "create", lambda directory, *_: directory.mkdir())

    def install(pinned, *_):
        if pinned in refused:
            raise pip.PackageUnavailableError("not here")
        lists.append(pinned)

    refused: set[str] = set()
    monkeypatch.setattr(engine_environment, "_install", install)
    return lists, refused


def ensure(tmp_path):
    with workspace_in(tmp_path / "var") as workspace:
        engine_environment.ensure(workspace)


def test_without_a_gpu_torch_is_the_cpu_build(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(engine_environment, "has_gpu", lambda: False)
    ensure(tmp_path)
    assert installed[0] == [engine_environment.CPU_TORCH_LIST, engine_environment.CPU_LIST]
    assert engine_environment.is_complete()


def test_where_no_cpu_build_is_offered_it_is_the_ordinary_one_and_said(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engine_environment, "has_gpu", lambda: False)
    installed[1].add(engine_environment.CPU_TORCH_LIST)
    ensure(tmp_path)
    assert installed[0] == [engine_environment.ANY_TORCH_LIST, engine_environment.CPU_LIST]
    assert "3 GB more to download" in capsys.readouterr().out


def test_a_gpu_that_appears_later_makes_the_cpu_environment_stale(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(engine_environment, "has_gpu", lambda: False)
    ensure(tmp_path)
    monkeypatch.setattr(engine_environment, "has_gpu", lambda: True)
    assert not engine_environment.is_complete()
