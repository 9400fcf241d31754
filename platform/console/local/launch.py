"""One run from its first process to its last: start in order, watch, stop in order."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from console.local import announcement, credentials, orphans, servers
from console.local.composition import Composition
from console.local.errors import CannotRunError
from console.local.places import ROOT, private_directory
from console.local.processes import as_child
from console.local.readiness import what_is_missing
from console.local.supervision import Supervision, procfile_programs, server_program
from console.local.terminal import Hangup, Progress, complain, say
from console.local.watch import Watch

# Stopped one after the other, those in a row together: first who takes requests, then who works on them.
STOP_ORDER = (("web",), ("worker", "replicas", "scheduler"), ("engine",))
STOP_WAIT_S = 15
READY_WITHIN_S = 900
# Longer than any first start takes: the person should look at the logs.
LONG_WAIT_S = 90


class StopRequestedError(Exception):
    """Somebody pressed Ctrl-C or sent SIGTERM."""


class Launch:
    """Starts everything that `composition` says and keeps it running until a signal comes."""

    def __init__(self, var: Path, composition: Composition) -> None:
        self._var, self._what = var, composition
        self._logs = private_directory(var / "log")
        self._environment = {**os.environ, **composition.settings}
        self._stops = 0
        self._hangup = Hangup()
        self._watch = Watch(self._logs)
        without = () if composition.runs_engine else ("engine", "replicas")
        self._processes = procfile_programs((ROOT / "Procfile").read_text(), self._environment, without)
        stores = [server_program(composition.postgres, 1), server_program(composition.valkey, 2)]
        self._supervision = Supervision([*stores, *self._processes], composition.places.control, self._logs)

    def run(self) -> int:
        """Returns the exit code. Whatever happens, nothing is left running."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._request_stop)
        try:
            self._start()
            self._wait_until_ready()
            announcement.announce(self._var, self._what)
            while True:
                self._look_after(1)
        except StopRequestedError:
            return 0
        except CannotRunError as failure:
            complain(str(failure))
            return 1
        finally:
            self._stop()

    def _start(self) -> None:
        _raise_open_files()
        stores = (self._what.postgres, self._what.valkey)
        progress = Progress("Starting PostgreSQL and Valkey", "about 5 s")
        for server in stores:
            server.prepare()
        self._supervision.start(self._environment)
        for server in stores:
            servers.wait_ready(server, partial(self._is_going, progress))
        self._what.postgres.ensure_database()
        progress.done()
        credentials.write(self._var / "settings.env", self._what.settings)
        names = [program.name for program in self._processes]
        if "engine" in names:  # it needs longest, and no database
            self._supervision.start_program("engine")
        self._manage(["migrate", "--no-input"], "Migrating the database", "about 10 s")
        self._manage(["seed_demo"], "Preparing the demonstration accounts", "about 5 s")
        for name in names:
            if name != "engine":
                self._supervision.start_program(name)

    def _manage(self, arguments: Sequence[str], title: str, expectation: str) -> None:
        """Run a management command. Raises CannotRunError when it fails."""
        progress = Progress(title, expectation)
        log = self._logs / f"{arguments[0]}.log"
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(
                as_child(command, signal.SIGTERM),
                env={**self._environment, **self._what.demo},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
            while process.poll() is None:
                self._look_after(0.1, process.pid)
                progress.tick()
        if process.returncode != 0:
            raise CannotRunError(f"{title}: failed, see {self._watch.where(arguments[0])}")
        progress.done()

    def _wait_until_ready(self) -> None:
        expectation = "about 45 s" if self._what.settings["BURSAR_ENGINE"] == "vllm" else "about 10 s"
        progress = Progress("Waiting until the first answer can be served", expectation)
        while missing := what_is_missing(self._what.url):
            self._look_after(0.5)
            progress.tick(f"{missing} (logs: {self._logs})" if progress.elapsed_s > LONG_WAIT_S else missing)
            if name := self._watch.failing():
                raise CannotRunError(f"{name} does not start: {self._watch.where(name)}")
            if progress.elapsed_s > READY_WITHIN_S:
                raise CannotRunError(f"not ready after {READY_WITHIN_S} s: {missing} (logs: {self._logs})")
        progress.done()

    def _look_after(self, seconds: float, *known: int) -> None:
        """Let time pass: notice stop requests, ended processes, and processes that lost their parent."""
        deadline = time.monotonic() + seconds
        while True:
            if not self._is_going():
                raise CannotRunError(f"the supervisor ended: see {self._logs / 'supervisord.log'}")
            if (left := deadline - time.monotonic()) <= 0:
                break
            time.sleep(min(left, 0.2))
        self._watch.look(self._supervision.states())
        orphans.end_orphans(self._supervision.pid, *known)

    def _is_going(self, progress: Progress | None = None) -> bool:
        """Whether the supervisor runs. Raises StopRequestedError when somebody wants it to end."""
        if progress is not None:
            progress.tick()
        if self._stops or self._hangup.happened():
            raise StopRequestedError
        return self._supervision.is_alive()

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1

    def _stop(self) -> None:
        """Stop in order, and by force at the second Ctrl-C or what does not end in time."""
        asked = self._stops
        say("Stopping (once more Ctrl-C: at once)")
        for names in STOP_ORDER:
            for name in names:
                self._supervision.stop_program(name)
            self._wait_while(partial(self._any_runs, names), asked)
        self._supervision.shut_down()
        self._wait_while(self._supervision.is_alive, asked)
        self._supervision.kill()
        orphans.end_all()
        say("Stopped")

    def _any_runs(self, names: Sequence[str]) -> bool:
        idle = ("STOPPED", "EXITED", "FATAL")
        return any(state.name in names and state.status not in idle for state in self._supervision.states())

    def _wait_while(self, condition: Callable[[], bool], asked: int) -> None:
        deadline = time.monotonic() + STOP_WAIT_S
        while condition() and time.monotonic() < deadline and self._stops <= asked:
            time.sleep(0.1)


def _raise_open_files() -> None:
    """As many open files as this user may have: every socket is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
