"""supervisord as our child: it runs the servers and the Procfile's processes, and starts again what ends."""

import shlex
import signal
import string
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

from console.local.errors import CannotRunError
from console.local.places import ROOT, private_directory
from console.local.processes import as_child
from console.local.servers import Server

# A GPU host needs the broker, the seal key and its engine; nothing of the database or the record.
WORKER_SETTINGS = (
    "BURSAR_ENGINE,BURSAR_ENGINE_*,BURSAR_MODEL_*,BURSAR_DEPLOYMENT,BURSAR_CONTEXT_LENGTH,"
    "BURSAR_VALKEY_URL,BURSAR_SEAL_KEY,BURSAR_LOG_*,BURSAR_RUN_DIRECTORY,BURSAR_ZONE,BURSAR_LOCAL_DEVICES"
)
KEPT_SETTINGS = dict.fromkeys(("worker", "engine", "replicas"), WORKER_SETTINGS)


@dataclass(frozen=True)
class Program:
    """One supervised process. Servers start with supervisord, the others when they are asked to."""

    name: str
    command: Sequence[str]
    priority: int
    stop_signal: signal.Signals = signal.SIGTERM
    stop_wait_s: int = 10
    starts_at_once: bool = False


@dataclass(frozen=True)
class State:
    """What supervisord says of a process; `started` changes with every start."""

    name: str
    status: str
    started: int


def server_program(server: Server, priority: int) -> Program:
    return Program(server.name, server.command(), priority, server.stop_signal, stop_wait_s=30, starts_at_once=True)


def procfile_programs(text: str, environment: Mapping[str, str], without: Sequence[str] = ()) -> list[Program]:
    """The processes of a Procfile, with the variables in their commands filled in."""
    programs: list[Program] = []
    for line in text.splitlines():
        name, _, command = line.partition(":")
        if name in without or not command:
            continue
        words = [string.Template(word).substitute(environment) for word in shlex.split(command)]
        child = as_child(words, signal.SIGTERM, keep=KEPT_SETTINGS.get(name, "*"))
        programs.append(Program(name, child, priority=100 + len(programs)))
    return programs


class Supervision:
    """A running supervisord. It dies with us, and whatever it runs dies with it."""

    def __init__(self, programs: Sequence[Program], run_directory: Path, log_directory: Path) -> None:
        self._programs, self._run, self._logs = programs, run_directory, log_directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: Mapping[str, str]) -> None:
        """Start supervisord with the servers. Raises CannotRunError."""
        configuration = self._run / "supervisord.conf"
        configuration.write_text(self._configuration())
        command = [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "--configuration", str(configuration)]
        with (private_directory(self._logs) / "supervisord.out").open("wb") as output:
            # A session of its own: Ctrl-C at the terminal reaches us alone, and we stop everything in order.
            self._process = subprocess.Popen(
                as_child(command, signal.SIGTERM),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while not self.states():
            if not self.is_alive() or time.monotonic() > deadline:
                raise CannotRunError(f"the supervisor did not start: see {self._logs / 'supervisord.out'}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def states(self) -> list[State]:
        """What every process is doing now; nothing while supervisord does not answer."""
        try:
            listed: Any = self._rpc().supervisor.getAllProcessInfo()
        except (OSError, xmlrpc.client.Error):
            return []
        return [State(one["name"], one["statename"], one["start"]) for one in listed]

    def start_program(self, name: str) -> None:
        self._rpc().supervisor.startProcess(name, False)

    def stop_program(self, name: str) -> None:
        """Ask for the end of a process; it is over when its state says so."""
        try:
            self._rpc().supervisor.stopProcess(name, False)
        except (OSError, xmlrpc.client.Error):
            return  # it has ended already

    def shut_down(self) -> None:
        """Ask supervisord to stop what still runs, the servers last, and end."""
        if self._process is not None and self.is_alive():
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None and self.is_alive():
            self._process.kill()
            self._process.wait()

    def _rpc(self) -> xmlrpc.client.ServerProxy:
        transport = SupervisorTransport(None, None, f"unix://{self._socket}")
        return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)

    @property
    def _socket(self) -> Path:
        return self._run / "supervisor.sock"

    def _configuration(self) -> str:
        head = f"""
[supervisord]
nodaemon = true
silent = true
umask = 077
minfds = 256
logfile = {self._logs / "supervisord.log"}
logfile_maxbytes = 5MB
logfile_backups = 1
pidfile = {self._run / "supervisord.pid"}
[unix_http_server]
file = {self._socket}
chmod = 0700
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
        return head + "".join(self._section(program) for program in self._programs)

    def _section(self, program: Program) -> str:
        # Retries never run out: a process that fails for long waits longer between its starts.
        command = shlex.join(program.command).replace("%", "%%")
        return f"""
[program:{program.name}]
command = {command}
directory = {str(ROOT).replace("%", "%%")}
priority = {program.priority}
autostart = {str(program.starts_at_once).lower()}
autorestart = true
startsecs = 2
startretries = 1000000
stopsignal = {program.stop_signal.name.removeprefix("SIG")}
stopwaitsecs = {program.stop_wait_s}
killasgroup = true
redirect_stderr = true
stdout_logfile = {str(self._logs / program.name).replace("%", "%%")}.log
stdout_logfile_maxbytes = 10MB
stdout_logfile_backups = 2
"""
