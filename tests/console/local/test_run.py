"""`make run` from a fresh copy of the sources: it installs, answers, recovers, stops, and leaves nothing running."""

import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from console.local import credentials, places, ports
from console.local.places import ROOT

pytestmark = pytest.mark.run

READY = "Ctrl-C stops everything"


class Run:
    """One `make run`, in a session of its own as in a terminal of its own."""

    def __init__(self, checkout: Path, *arguments: str) -> None:
        self.checkout = checkout
        self.output = checkout.with_suffix(f".{time.monotonic_ns()}.log")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                ["make", "run", "ENGINE=simulated", f"PYTHON={sys._base_executable}", *arguments],
                cwd=checkout,
                env={name: value for name, value in os.environ.items() if not name.startswith("BURSAR_")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # Tests that run in the background were told to ignore Ctrl-C; a terminal's programs are not.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def wait_ready(self, timeout_s: float) -> "Run":
        wait_for(lambda: READY in self.text or self.process.poll() is not None, timeout_s)
        assert READY in self.text, self.text
        return self

    @property
    def text(self) -> str:
        return self.output.read_text()

    @property
    def demo(self) -> dict[str, str]:
        return credentials.read(self.checkout / "var" / "demo.env")

    @property
    def launcher(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def find(self, part: str) -> psutil.Process | None:
        """The supervised process whose command line has `part` in it."""
        for process in self.launcher.children(recursive=True):
            if any(part in argument for argument in cmdline(process)):
                return process
        return None

    def request(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        address = urlsplit(self.demo["BURSAR_URL"])
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.demo['BURSAR_API_KEY']}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ask(self) -> object:
        question = [{"role": "user", "content": "Hello"}]
        body = {"model": self.demo["BURSAR_MODEL_NAME"], "messages": question, "max_tokens": 8}
        status, answer = self.request("POST", "/v1/chat/completions", body)
        assert status == 200, answer
        return answer["choices"][0]["message"]["content"]

    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)


def wait_for(condition, timeout_s: float = 30):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return found


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def left_running(checkout: Path) -> list[list[str]]:
    """The command lines of processes that work in or for `checkout`."""
    marks = (str(checkout), str(places.places_for(checkout / "var").data))
    found = []
    for process in psutil.process_iter():
        try:
            belongs = process.cwd() == str(checkout)
        except psutil.Error:
            continue
        command = cmdline(process)
        if process.status() != psutil.STATUS_ZOMBIE and (
            belongs or any(mark in argument for mark in marks for argument in command)
        ):
            found.append(command)
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The sources as they are now, without anything that is ignored: what a clone would have."""
    if not shutil.which("git") or not shutil.which("make"):
        pytest.skip("git and make are needed to copy and run the sources")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    copy = tmp_path_factory.mktemp("run") / "bursar"
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    yield copy
    places.remove_places(copy / "var", places.places_for(copy / "var"))


@pytest.fixture(scope="module")
def run(checkout):
    running = Run(checkout).wait_ready(timeout_s=400)
    yield running
    if running.process.poll() is None:
        running.press_ctrl_c()
        running.process.wait(60)


def test_a_fresh_copy_installs_starts_and_answers(run):
    assert run.ask()
    assert "Installing the platform into .venv: done in" in run.text


def test_it_says_where_to_go_and_writes_the_same_for_programs(run):
    assert stat.S_IMODE((run.checkout / "var" / "demo.env").stat().st_mode) == 0o600
    names = {
        "URL",
        "API_KEY",
        "USER",
        "ADMIN_USER",
        "ADMIN_PASSWORD",
        "OFFICER_USER",
        "OFFICER_PASSWORD",
        "USER_PASSWORD",
    }
    assert {f"BURSAR_{name}" for name in names} <= set(run.demo)
    assert run.demo["BURSAR_URL"] in run.text
    assert run.demo["BURSAR_API_KEY"] in run.text
    assert run.demo["BURSAR_ADMIN_PASSWORD"] in run.text


def test_no_file_of_the_run_is_readable_by_others(run):
    for path in (run.checkout / "var").rglob("*"):
        assert not path.lstat().st_mode & 0o077 or path.is_symlink(), path


def test_a_second_run_is_refused_in_one_line(run):
    second = Run(run.checkout)
    assert second.process.wait(60) != 0
    complaints = [line for line in second.text.splitlines() if line.startswith("bursar:")]
    assert len(complaints) == 1
    assert "running from this checkout already" in complaints[0]


@pytest.mark.parametrize("part", ["uvicorn", "gpu_workers.app", "console.celery"])
def test_a_killed_process_comes_back_and_answers(run, part):
    victim = wait_for(lambda: run.find(part))
    victim.kill()
    wait_for(lambda: (found := run.find(part)) and found.pid != victim.pid)
    wait_for(run.is_ready, 60)
    assert run.ask()


def test_ctrl_c_stops_everything(run):
    run.press_ctrl_c()
    assert run.process.wait(60) != 0  # make's own code after an interrupt
    assert "Stopped" in run.text
    assert left_running(run.checkout) == []


def test_the_next_start_keeps_data_and_secrets_and_a_killed_launcher_leaves_nothing(run):
    before = run.demo
    again = Run(run.checkout, f"PORT={ports.free_port()}").wait_ready(timeout_s=60)
    assert "Installing" not in again.text
    assert {name: value for name, value in again.demo.items() if name != "BURSAR_URL"} == {
        name: value for name, value in before.items() if name != "BURSAR_URL"
    }
    assert again.ask()
    again.launcher.kill()
    again.process.wait(10)
    wait_for(lambda: not left_running(run.checkout), 60)


def test_it_starts_again_after_the_kill_and_refuses_a_taken_port(run):
    port = ports.free_port()
    third = Run(run.checkout, f"PORT={port}").wait_ready(timeout_s=60)
    try:
        assert third.ask()
    finally:
        third.press_ctrl_c()
        third.process.wait(60)
    with socket.create_server(("127.0.0.1", port)):
        refused = Run(run.checkout, f"PORT={port}")
        assert refused.process.wait(60) != 0
    assert f"port {port} is taken" in refused.text
    assert "Traceback" not in refused.text
