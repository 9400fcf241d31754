"""The secrets of a checkout: generated once, kept in var/secrets.env, readable by nobody else."""

import os
import re
import secrets
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from console.local.errors import CannotRunError

# Without the characters that people take for one another.
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


def generate_password() -> str:
    """A password of 100 bits that can be typed from a screen."""
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(5)) for _ in range(4))


def generate_api_key() -> str:
    return "bsk_" + secrets.token_urlsafe(32)


def _hex_key() -> str:
    return secrets.token_hex(32)


GENERATED: dict[str, Callable[[], str]] = {
    "BURSAR_SECRET_KEY": _hex_key,
    "BURSAR_RECORD_KEY": _hex_key,
    "BURSAR_SEAL_KEY": _hex_key,
    "BURSAR_ENGINE_API_KEY": _hex_key,
    "BURSAR_DATABASE_PASSWORD": _hex_key,
    "BURSAR_DATABASE_SUPERUSER_PASSWORD": _hex_key,
    "BURSAR_VALKEY_PASSWORD": _hex_key,
    "BURSAR_ADMIN_PASSWORD": generate_password,
    "BURSAR_OFFICER_PASSWORD": generate_password,
    "BURSAR_USER_PASSWORD": generate_password,
    "BURSAR_API_KEY": generate_api_key,
}


def load_or_generate(path: Path, database: Path) -> dict[str, str]:
    """The secrets in `path`, generated where absent. Raises CannotRunError when they are lost but `database` is not."""
    known = read(path) if path.exists() else {}
    if database.exists() and "BURSAR_RECORD_KEY" not in known:
        raise CannotRunError(
            f"{path} with the key of the record is missing, but its database is there: restore the file,"
            f" or delete {database.parent} to start anew"
        )
    complete = {name: known.get(name) or generate() for name, generate in GENERATED.items()}
    if complete != known:
        write(path, complete)
    path.chmod(0o600)
    return complete


def read(path: Path) -> dict[str, str]:
    """The variables of a file of NAME=value lines. Raises CannotRunError when it is something else."""
    values = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        found = re.fullmatch(r"([A-Z_]+)=(.*)", line)
        if not found:
            raise CannotRunError(f"{path}, line {number} is not of the form NAME=value")
        values[found[1]] = "".join(shlex.split(found[2]))
    return values


def write(path: Path, values: Mapping[str, str]) -> None:
    """Write variables that a shell can read too, for our own eyes only and never half."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
