"""Private PostgreSQL and Valkey servers for tests: real ones, temporary, started in about a second."""

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.local import locks, servers
from console.local.errors import CannotRunError
from console.local.places import places_for, remove_places
from console.local.postgres import Postgres
from console.local.valkey import Valkey

PREFIX = "bursar-tests-"
# A directory this young may belong to a test that has not taken its lock yet.
JUST_MADE_S = 60


@dataclass
class Services:
    """A running pair of servers; both can be killed and started again in a test."""

    postgres: Postgres
    valkey: Valkey
    processes: dict[str, "subprocess.Popen[bytes]"]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that settings read."""
        return {"BURSAR_DATABASE_URL": self.postgres.url(), "BURSAR_VALKEY_URL": self.valkey.url()}

    def start(self, server: Postgres | Valkey) -> None:
        server.prepare()
        self.processes[server.name] = servers.start(server)

    def stop(self, server: Postgres | Valkey) -> None:
        if process := self.processes.pop(server.name, None):
            servers.stop(server, process)

    def kill(self, server: Postgres | Valkey) -> None:
        """End a server the hard way, as a crash would."""
        process = self.processes.pop(server.name)
        process.kill()
        process.wait()


def sweep_abandoned() -> None:
    """Remove what tests that were killed left behind; a lock that can be taken has no holder any more."""
    for var in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(CannotRunError, OSError):
            if time.time() - var.stat().st_mtime > JUST_MADE_S:
                os.close(locks.hold(var / "tests.lock", "in use"))
                remove_places(var, places_for(var))
                shutil.rmtree(var)


@contextmanager
def running_services() -> Iterator[Services]:
    """Start both servers on temporary data, and leave nothing behind."""
    sweep_abandoned()
    with ExitStack() as stack:
        var = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
        stack.callback(os.close, locks.hold(var / "tests.lock", "in use"))
        places = places_for(var)
        stack.callback(remove_places, var, places)
        postgres = Postgres(places, secrets.token_hex(16), secrets.token_hex(16), may_create_databases=True)
        services = Services(postgres, Valkey(places, secrets.token_hex(16)), {})
        for server in (services.postgres, services.valkey):
            services.start(server)
            stack.callback(services.stop, server)
        postgres.ensure_database()
        yield services
