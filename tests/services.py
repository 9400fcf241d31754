"""Private PostgreSQL and Valkey servers for tests: real ones, temporary, started in about a second."""

import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.local import servers
from console.local.places import places_for, remove_places
from console.local.postgres import Postgres
from console.local.valkey import Valkey


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


@contextmanager
def running_services() -> Iterator[Services]:
    """Start both servers on temporary data, and leave nothing behind."""
    with ExitStack() as stack:
        var = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bursar-")))
        places = places_for(var)
        stack.callback(remove_places, var, places)
        postgres = Postgres(places, secrets.token_hex(16), secrets.token_hex(16), may_create_databases=True)
        services = Services(postgres, Valkey(places, secrets.token_hex(16)), {})
        for server in (services.postgres, services.valkey):
            services.start(server)
            stack.callback(services.stop, server)
        postgres.ensure_database()
        yield services
