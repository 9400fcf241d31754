"""An engine is measured over HTTP, and the simulated one is started from what was measured, as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from django.core.management import CommandError, call_command

from console.local.ports import free_port
from gpu_workers.engine_state import EngineState, state_file, write_state
from gpu_workers.engines.latency import LEVELS, Measured, Profile, read_profile, write_profile
from gpu_workers.settings import load
from gpu_workers.supervisor import engine_commands
from tests.stack import ROOT, wait_for

KEY = "engine-key"
SMALL = {"words": (3, 30), "repeats": 2, "at_once": (1, 3), "rounds": 1, "answer_tokens": 6}


def point(at: int, ms: float) -> Measured:
    return Measured(at, 1, (ms,) * len(LEVELS))


@pytest.fixture
def profile_file(tmp_path: Path) -> Path:
    profile = Profile(1, "vLLM", "m", "h", "2026-12-01", (point(1, 2.0),), (point(1, 1.0), point(8, 2.0)))
    (tmp_path / "given.json").write_bytes(write_profile(profile))
    return tmp_path / "given.json"


@contextmanager
def engine_from(profile: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The simulated engine as its supervisor would start it with this profile; yields its address."""
    url = f"http://127.0.0.1:{free_port()}/v1"
    settings = {
        "BURSAR_VALKEY_URL": "unix:///none",
        "BURSAR_SEAL_KEY": "0" * 64,
        "BURSAR_DEPLOYMENT": "d",
        "BURSAR_ENGINE": "simulated",
        "BURSAR_ENGINE_URL": url,
        "BURSAR_ENGINE_MODEL": "simulated",
        "BURSAR_ENGINE_PROFILE": str(profile),
        "BURSAR_ENGINE_API_KEY": KEY,
        "BURSAR_RUN_DIRECTORY": str(directory),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    engine = engine_commands(load())[0]
    assert list(engine.command)[-2:] == ["--profile", str(profile)]
    process = subprocess.Popen(engine.command, env=dict(engine.environment), cwd=ROOT)
    try:
        wait_for(lambda: _is_up(engine.url), "the engine listens")
        yield url
    finally:
        process.terminate()
        process.wait()


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def test_a_measured_profile_starts_a_simulation_that_is_measured_at_the_same_points(
    profile_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    for given, measured in ((profile_file, first), (first, second)):
        with engine_from(given, tmp_path / "run", monkeypatch) as url:
            call_command("engine_profile", str(measured), url=url, model="simulated", vllm=True, **SMALL)
        profile = read_profile(measured)
        assert profile.engine == "vLLM simulated"
        assert [(one.at, one.samples) for one in profile.itl] == [(1, 5), (3, 15)]
        assert [one.samples for one in profile.ttft] == [2, 2]
        assert profile.ttft[1].at - profile.ttft[0].at == 27


def test_the_active_engine_of_a_deployment_is_found(
    profile_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_from(profile_file, tmp_path / "run", monkeypatch) as url:
        with pytest.raises(CommandError, match="no engine of it is active"):
            call_command("engine_profile", str(tmp_path / "p.json"), deployment="d", model="simulated", **SMALL)
        write_state(state_file(tmp_path / "run", "d"), EngineState(url, 1))
        call_command("engine_profile", str(tmp_path / "p.json"), deployment="d", model="simulated", **SMALL)
    assert read_profile(tmp_path / "p.json").engine == "OpenAI-compatible server"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x", "model": "m"}, "--url must look like"),
        ({"url": "", "model": "m"}, "--url must look like"),
        ({"url": "http://127.0.0.1:9/v1", "model": ""}, "--model is missing"),
        ({"url": "http://127.0.0.1:9/v1", "model": "m", "at_once": (5000,)}, "--at-once: at most"),
        ({"url": "http://127.0.0.1:9/v1", "model": "m"}, "broke off"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(options: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("engine_profile", str(tmp_path / "p.json"), **{**SMALL, **options})
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("text", ["0", "1,x", "", "1,-2"])
def test_counts_that_are_none_are_refused_by_their_option(text: str, tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "engine_profile", str(tmp_path / "p.json"), f"--words={text}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--words: expected whole numbers" in done.stderr
