"""Supervision: an engine that ends is started again, and one whose supervisor ends is not left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from console.local.ports import free_port
from gpu_workers.engines import process as supervision
from gpu_workers.engines.process import EngineCommand, EngineProcess, passed_on_environment
from tests.stack import ROOT, wait_for

PATIENCE_S = 30
# An engine that notes its pid and, as real ones do, has a helper of its own.
ENGINE = """
import os, subprocess, sys, time
helper = subprocess.Popen(["sleep", "600"])
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()} {helper.pid}\\n")
time.sleep(float(sys.argv[2]))
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENGINE


def command(notes: Path, seconds: float, code: str = ENGINE) -> list[str]:
    return [sys.executable, "-c", code, str(notes), str(seconds)]


def noted(notes: Path) -> list[tuple[int, int]]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(condition: object, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what, PATIENCE_S)  # type: ignore[arg-type]


@asynccontextmanager
async def kept_running(engine: list[str]) -> AsyncIterator[EngineProcess]:
    process = EngineProcess(EngineCommand(engine, passed_on_environment(), f"http://127.0.0.1:{free_port()}"))
    running = asyncio.create_task(process.run())
    try:
        yield process
    finally:
        await process.stop()
        await asyncio.wait_for(running, PATIENCE_S)


async def test_an_engine_that_ends_is_started_again_after_longer_and_longer_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    pause = EngineProcess._pause

    async def noting(self: EngineProcess, seconds: float) -> None:
        pauses.append(seconds)
        await pause(self, 0.01)

    monkeypatch.setattr(EngineProcess, "_pause", noting)
    async with kept_running(command(tmp_path / "pids", 0)):
        await until(lambda: len(pauses) >= 7, "it was started seven times")

    assert pauses[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_an_engine_that_was_steady_is_started_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "STEADY_AFTER_S", 0.0)
    monkeypatch.setattr(supervision, "FIRST_BACKOFF_S", 0.01)
    async with kept_running(command(tmp_path / "pids", 0)):
        await until(lambda: len(noted(tmp_path / "pids")) >= 6, "it was started six times")


async def test_kill_9_of_an_engine_takes_its_helpers_and_starts_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_BACKOFF_S", 0.01)
    pids = tmp_path / "pids"
    async with kept_running(command(pids, 600)):
        await until(lambda: len(noted(pids)) == 1, "it runs")
        engine, helper = noted(pids)[0]
        os.kill(engine, signal.SIGKILL)
        await until(lambda: len(noted(pids)) == 2, "another runs")
        assert not is_running(helper)
    await until(lambda: not any(is_running(pid) for pair in noted(pids) for pid in pair), "none is left")


async def test_stopping_leaves_no_process_even_of_an_engine_that_will_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "STOP_TIMEOUT_S", 0.3)
    pids = tmp_path / "pids"
    async with kept_running(command(pids, 600, STUBBORN)):
        await until(lambda: len(noted(pids)) == 1, "it runs")
    await until(lambda: not any(is_running(pid) for pid in noted(pids)[0]), "none is left")


async def test_stopping_while_it_starts_ends_what_was_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process = EngineProcess(EngineCommand(command(pids, 600), passed_on_environment(), "http://127.0.0.1:1"))
    running = asyncio.create_task(process.run())
    await asyncio.sleep(0)  # it has begun to make the process, and has none yet
    await process.stop()

    await asyncio.wait_for(running, PATIENCE_S)
    await until(lambda: not any(is_running(pid) for pair in noted(pids) for pid in pair), "none is left")


def environment(**changes: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        "BURSAR_VALKEY_URL": "unix:///nowhere",
        "BURSAR_SEAL_KEY": "ab" * 32,
        "BURSAR_DEPLOYMENT": "d",
        "BURSAR_ENGINE": "simulated",
        "BURSAR_ENGINE_URL": f"http://127.0.0.1:{free_port()}/v1",
        "BURSAR_ENGINE_MODEL": "simulated",
        **changes,
    }


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_ends_in_any_way_leaves_no_engine(ending: signal.Signals) -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "gpu_workers.supervisor"], cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        process = psutil.Process(supervisor.pid)
        # Between fork and exec a child still looks like its parent.
        runs = "gpu_workers.engines.simulated"
        wait_for(lambda: any(runs in child.cmdline() for child in process.children()), "the engine runs", PATIENCE_S)
        (engine,) = process.children()
        assert [name for name in engine.environ() if name.startswith("BURSAR_")] == ["BURSAR_ENGINE_API_KEY"]
        supervisor.send_signal(ending)
        supervisor.wait(PATIENCE_S)
        wait_for(lambda: not engine.is_running(), "the engine has ended", PATIENCE_S)
    finally:
        supervisor.kill()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"BURSAR_ENGINE": "openai"}, "attached"),
        ({"BURSAR_ENGINE": "vllm"}, "BURSAR_ENGINE_PYTHON"),
        ({"BURSAR_ENGINE": "secretvalue"}, "BURSAR_ENGINE"),
        ({"BURSAR_SEAL_KEY": "secretvalue"}, "BURSAR_SEAL_KEY"),
        ({"BURSAR_DEPLOYMENT": ""}, "BURSAR_DEPLOYMENT"),
        ({"BURSAR_CONTEXT_LENGTH": "secretvalue"}, "BURSAR_CONTEXT_LENGTH"),
    ],
)
def test_a_supervisor_with_wrong_settings_says_which_and_not_their_value(changes: dict[str, str], names: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpu_workers.supervisor"],
        cwd=ROOT,
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert names in done.stderr
    assert "secretvalue" not in done.stderr
    assert "Traceback" not in done.stderr
