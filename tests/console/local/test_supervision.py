"""What supervisord runs for us comes back when it is killed, and goes when we go."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from console.local.places import places_for, remove_places
from console.local.supervision import Program, Supervision, procfile_programs

SLEEP = [sys.executable, "-c", "import os, time; print(sorted(os.environ), flush=True); time.sleep(300)"]


def wait_for(condition, timeout_s: float = 30):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


@pytest.fixture
def places(tmp_path):
    found = places_for(tmp_path / "var")
    yield found
    remove_places(tmp_path / "var", found)


@pytest.fixture
def supervision(places, tmp_path):
    running = Supervision([Program("sleeper", SLEEP, 1, starts_at_once=True)], places.control, tmp_path / "log")
    running.start({**os.environ, "BURSAR_X": "1"})
    yield running
    running.shut_down()
    wait_for(lambda: not running.is_alive())


def child_of(pid: int) -> int:
    children = psutil.Process(pid).children()
    return children[0].pid if children else 0


def test_a_killed_process_comes_back(supervision):
    first = wait_for(lambda: child_of(supervision.pid))
    wait_for(lambda: [state for state in supervision.states() if state.status == "RUNNING"])
    os.kill(first, signal.SIGKILL)
    second = wait_for(lambda: (pid := child_of(supervision.pid)) != first and pid)
    assert psutil.pid_exists(second)


def test_logs_are_private(supervision, tmp_path):
    wait_for(lambda: (tmp_path / "log" / "sleeper.log").exists())
    for log in (tmp_path / "log").glob("sleeper.log"):
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_everything_ends_when_the_launcher_is_killed(places, tmp_path):
    code = (
        "import os, sys, time; from pathlib import Path;"
        "from console.local.supervision import Program, Supervision; from console.local.processes import as_child;"
        "import signal;"
        f"command = as_child({SLEEP!r}, signal.SIGTERM);"
        f"s = Supervision([Program('sleeper', command, 1, starts_at_once=True)], Path({str(places.control)!r}),"
        f" Path({str(tmp_path / 'log')!r}));"
        "s.start(dict(os.environ)); print(s.pid, flush=True); time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout
        supervisor = int(launcher.stdout.readline())
        sleeper = wait_for(lambda: child_of(supervisor))
        launcher.kill()
    wait_for(lambda: not psutil.pid_exists(supervisor) and not psutil.pid_exists(sleeper))


def test_everything_ends_when_the_supervisor_is_killed(places, tmp_path):
    from console.local.processes import as_child

    command = as_child(SLEEP, signal.SIGTERM)
    running = Supervision([Program("sleeper", command, 1, starts_at_once=True)], places.control, tmp_path / "log")
    running.start(dict(os.environ))
    sleeper = wait_for(lambda: child_of(running.pid))
    running.kill()
    wait_for(lambda: not psutil.pid_exists(sleeper))


def test_a_workers_environment_holds_no_key_of_the_record(places, tmp_path):
    procfile = f"worker: {sys.executable} -c 'import os, time; print(sorted(os.environ), flush=True); time.sleep(60)'"
    environment = {**os.environ, "BURSAR_RECORD_KEY": "r", "BURSAR_DATABASE_URL": "d", "BURSAR_VALKEY_URL": "v"}
    programs = procfile_programs(procfile, environment)
    running = Supervision(programs, places.control, tmp_path / "log")
    running.start(environment)
    try:
        running.start_program("worker")
        log = tmp_path / "log" / "worker.log"
        seen = wait_for(lambda: log.exists() and log.read_text())
    finally:
        running.shut_down()
        wait_for(lambda: not running.is_alive())
    assert "BURSAR_VALKEY_URL" in seen
    assert "BURSAR_RECORD_KEY" not in seen
    assert "BURSAR_DATABASE_URL" not in seen


def test_the_procfile_is_filled_in_and_quoted():
    (web,) = procfile_programs(
        "web: python -m server --port $BURSAR_PORT %h\nengine: run", {"BURSAR_PORT": "8"}, ["engine"]
    )
    assert web.name == "web"
    assert web.command[-4:] == ["server", "--port", "8", "%h"]


def test_the_real_procfile_names_the_processes_that_the_launcher_orders():
    from console.local.launch import STOP_ORDER
    from console.local.places import ROOT

    environment = {"BURSAR_HOST": "h", "BURSAR_PORT": "1", "BURSAR_DEPLOYMENT": "d"}
    names = {program.name for program in procfile_programs(Path(ROOT / "Procfile").read_text(), environment)}
    assert names == {name for row in STOP_ORDER for name in row}
