"""Engines of one deployment: one is active, another takes over when it dies or stands still; never are there two."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.local.ports import free_port
from gpu_workers.engine_state import ActiveEngine, EngineState, state_file, write_state
from gpu_workers.engines import process as processes
from gpu_workers.engines.process import EngineCommand, passed_on_environment
from gpu_workers.engines.slots import Patience, Slots
from gpu_workers.settings import SettingsError
from tests.stack import ROOT

PATIENCE_S = 30.0
QUICK = Patience(silent_s=1.0, stuck_s=1.0, drain_s=5.0)


def simulated(*options: str) -> EngineCommand:
    port = free_port()
    command = [sys.executable, "-m", "gpu_workers.engines.simulated", "--port", str(port), *options]
    environment = passed_on_environment() | {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"}
    return EngineCommand(command, environment, f"http://127.0.0.1:{port}")


async def until(found: Callable[[], Any], what: str) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (value := found()):
            await asyncio.sleep(0.02)
    return value


class Host:
    """A supervisor's slots, and what they tell."""

    def __init__(self, directory: Path, name: str, engines: list[EngineCommand]) -> None:
        self.engines = engines
        self.file = directory / f"{name}.engine.json"
        self.slots = Slots(engines, directory / "lock", self.file, QUICK)
        self.stop = asyncio.Event()
        self._reader = ActiveEngine("", self.file)

    @property
    def active(self) -> EngineState:
        return self._reader.current()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Host]:
        running = asyncio.create_task(self.slots.run(self.stop))
        try:
            yield self
        finally:
            self.stop.set()
            await asyncio.wait_for(running, PATIENCE_S)

    def pid_of(self, url: str) -> int:
        port = url.removesuffix("/v1").rpartition(":")[2]
        found = subprocess.run(["pgrep", "-f", f"simulated --port {port}"], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FIRST_BACKOFF_S", 0.05)


async def test_the_one_that_stands_by_takes_over_and_another_is_made(tmp_path: Path) -> None:
    async with Host(tmp_path, "d", [simulated(), simulated()]).running() as host:
        first = await until(lambda: host.active.url, "one is active")
        await until(lambda: all(watch.ready.is_set() for watch in host.slots._watches), "the other stands by")
        os.kill(host.pid_of(first), signal.SIGKILL)
        second = await until(lambda: host.active.url if host.active.epoch == 2 else "", "the other is active")

        assert second != first
        await until(lambda: all(watch.ready.is_set() for watch in host.slots._watches), "another stands by")
        os.kill(host.pid_of(second), signal.SIGKILL)
        assert await until(lambda: host.active.url if host.active.epoch == 3 else "", "that is active") == first
    assert host.active.url == ""


async def test_without_another_it_is_started_anew(tmp_path: Path) -> None:
    async with Host(tmp_path, "d", [simulated()]).running() as host:
        url = await until(lambda: host.active.url, "it is active")
        os.kill(host.pid_of(url), signal.SIGKILL)
        await until(lambda: host.active.epoch == 2, "it is active again")
        assert host.active.url == url


async def test_one_that_stands_still_is_ended(tmp_path: Path) -> None:
    async with Host(tmp_path, "d", [simulated(), simulated()]).running() as host:
        url = await until(lambda: host.active.url, "it is active")
        os.kill(host.pid_of(url), signal.SIGSTOP)
        await until(lambda: host.active.epoch == 2, "another is active")
        assert host.active.url != url


async def test_one_that_takes_requests_and_makes_nothing_of_them_is_ended(tmp_path: Path) -> None:
    async with Host(tmp_path, "d", [simulated("--itl-ms", "20")]).running() as host, httpx.AsyncClient() as http:
        url = await until(lambda: host.active.url, "it is active")
        pid = host.pid_of(url)
        os.kill(pid, signal.SIGUSR1)
        body = {"model": "simulated", "messages": [{"role": "user", "content": "why"}], "stream": True}
        with pytest.raises(httpx.TransportError):
            await http.post(f"{url}/chat/completions", json=body, timeout=PATIENCE_S)
        await until(lambda: host.active.epoch == 2, "it is active again")
        assert host.pid_of(host.active.url) != pid


async def test_an_idle_engine_is_left_alone_however_long(tmp_path: Path) -> None:
    async with Host(tmp_path, "d", [simulated()]).running() as host:
        await until(lambda: host.active.url, "it is active")
        await asyncio.sleep(3 * QUICK.stuck_s)
        assert host.active.epoch == 1


async def test_two_supervisors_have_one_active_engine_between_them(tmp_path: Path) -> None:
    one, other = Host(tmp_path, "one", [simulated()]), Host(tmp_path, "other", [simulated()])
    async with one.running(), other.running():
        await until(lambda: one.active.url or other.active.url, "one is active")
        await until(lambda: all(host.slots._watches[0].ready.is_set() for host in (one, other)), "both are ready")
        await asyncio.sleep(0.5)
        active, standing = (one, other) if one.active.url else (other, one)
        assert standing.active.url == ""

        os.kill(active.pid_of(active.active.url), signal.SIGSTOP)  # it stands still, and holds the lock
        await until(lambda: standing.active.url, "the other takes over once it is ended")
        assert not (one.active.url and other.active.url)


async def test_what_is_being_answered_may_go_on_for_a_while_when_it_is_shut_down(tmp_path: Path) -> None:
    host = Host(tmp_path, "d", [simulated("--itl-ms", "20")])
    async with httpx.AsyncClient() as http, host.running():
        url = await until(lambda: host.active.url, "it is active")
        body = {"model": "simulated", "messages": [{"role": "user", "content": "why"}]}
        answering = asyncio.create_task(http.post(f"{url}/chat/completions", json=body, timeout=PATIENCE_S))
        await until(lambda: host.slots._watches[0].load.running, "it answers")
        host.stop.set()
        await until(lambda: not host.active.url, "nothing new is sent to it")
        assert (await answering).status_code == 200


async def test_the_last_lines_of_an_engine_are_kept(tmp_path: Path) -> None:
    code = "import sys; print('x' * 100_000); print('out of memory', file=sys.stderr); sys.exit(3)"
    engine = EngineCommand([sys.executable, "-c", code], passed_on_environment(), "http://127.0.0.1:1")
    async with Host(tmp_path, "d", [engine]).running() as host:
        lines = host.slots._processes[0].last_lines
        await until(lambda: "out of memory" in lines, "its last words are there")
        assert all(len(line) <= processes.LINE_CHARS for line in lines)


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    assert state_file(tmp_path / "new", "d").parent.stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    (tmp_path / "file").touch()
    for name in ("open", "link", "file", "file/below"):
        with pytest.raises(SettingsError, match="BURSAR_RUN_DIRECTORY"):
            state_file(tmp_path / name, "d")


def test_a_file_that_is_missing_or_broken_names_no_engine(tmp_path: Path) -> None:
    file = tmp_path / "d.engine.json"
    reader = ActiveEngine("http://fixed", file)
    assert reader.current() == EngineState()
    write_state(file, EngineState("http://a", 3))
    assert reader.current() == EngineState("http://a", 3)
    file.write_text("{")
    assert reader.current() == EngineState()
    assert ActiveEngine("http://fixed").current() == EngineState("http://fixed")


async def test_an_engine_that_cannot_be_started_ends_the_supervisor_and_leaves_nothing(tmp_path: Path) -> None:
    missing = EngineCommand([str(tmp_path / "none")], passed_on_environment(), "http://127.0.0.1:1")
    host = Host(tmp_path, "d", [simulated(), missing])
    with pytest.raises(FileNotFoundError):
        async with asyncio.timeout(PATIENCE_S):
            await host.slots.run(asyncio.Event())
    assert all(process.pid is None for process in host.slots._processes)


async def test_a_file_that_cannot_be_written_is_written_as_soon_as_it_can(tmp_path: Path) -> None:
    in_its_way = tmp_path / "d.engine.new"
    in_its_way.mkdir()  # as a full disk would be
    async with Host(tmp_path, "d", [simulated()]).running() as host:
        await until(lambda: host.slots._watches[0].ready.is_set(), "it is ready")
        await asyncio.sleep(0.3)
        assert host.active.url == ""
        in_its_way.rmdir()
        first = await until(lambda: host.active.url, "it is told")
        in_its_way.mkdir()
        os.kill(host.pid_of(first), signal.SIGKILL)
        await until(lambda: host.slots._processes[0].starts == 2, "it is started again all the same")
        in_its_way.rmdir()
        await until(lambda: host.active.epoch == 2, "and told again")
