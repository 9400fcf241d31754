"""A bundle is built by the published command line; a stand-in takes the builder's place, which needs a GPU."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_workers.model_bundle import BuildFailed, build_command
from tests.stack import ROOT

BUILDS = 'while [ "$1" != -o ]; do shift; done; printf bundle > "$2"; echo building'


def builder(directory: Path, script: str) -> Path:
    file = directory / "trtmc"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)
    return file


def run(model: str, bundle: Path, trtmc: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpu_workers.model_bundle", model, str(bundle), "--trtmc", str(trtmc)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        ("Qwen/Qwen3-0.6B", ["Qwen/Qwen3-0.6B"]),
        ("Qwen/Qwen3-0.6B@abc123", ["Qwen/Qwen3-0.6B", "--model-revision", "abc123"]),
        ("/models/a@b", ["/models/a@b"]),
    ],
)
def test_the_command_is_the_published_one(model: str, arguments: list[str]) -> None:
    assert build_command("trtmc", model, Path("x.bundle")) == ["trtmc", "build", *arguments, "-o", "x.bundle"]


def test_a_name_that_would_be_an_option_is_refused() -> None:
    with pytest.raises(BuildFailed):
        build_command("trtmc", "--config", Path("x.bundle"))


def test_the_checksum_is_printed_and_what_the_builder_said_is_kept(tmp_path: Path) -> None:
    bundle = tmp_path / "m.bundle"
    done = run("owner/name", bundle, builder(tmp_path, BUILDS))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{hashlib.sha256(b'bundle').hexdigest()}\n"
    assert (tmp_path / "m.bundle.log").read_text() == "building\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no such family >&2; exit 3", "bundle: The builder ended with 3; what it said is in m.bundle.log.\n"),
        ("true", "bundle: The builder made no bundle; what it said is in m.bundle.log.\n"),
    ],
)
def test_a_build_that_fails_is_one_line(tmp_path: Path, script: str, said: str) -> None:
    done = run("owner/name", tmp_path / "m.bundle", builder(tmp_path, script))
    assert (done.returncode, done.stderr) == (2, said)


def test_a_builder_that_is_not_there_and_a_bundle_that_is_are_said(tmp_path: Path) -> None:
    missing = run("owner/name", tmp_path / "m.bundle", tmp_path / "none")
    assert "cannot be started" in missing.stderr
    (tmp_path / "m.bundle").write_text("before")
    assert "is there already" in run("owner/name", tmp_path / "m.bundle", builder(tmp_path, BUILDS)).stderr
    assert (tmp_path / "m.bundle").read_text() == "before"
