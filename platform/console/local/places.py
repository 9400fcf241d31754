"""Where a checkout keeps its servers' data and sockets, and as whom the servers run."""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from console.local.errors import CannotRunError

ROOT = Path(__file__).resolve().parents[3]
SHARED_HOME = Path("/var/lib/bursar")
ACCOUNT_NAME = "bursar-db"
# A socket's path may have 107 bytes; the longest name below the directory is ".s.PGSQL.5432.lock".
LONGEST_SOCKET_DIRECTORY = 107 - len("/.s.PGSQL.5432.lock")


@dataclass(frozen=True)
class Account:
    """The unprivileged system account that runs the servers when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Places:
    """Directories of one set of servers, all private to us or to `account`."""

    data: Path
    sockets: Path
    control: Path  # ours even when `account` runs the servers
    binaries: Path  # shared by all checkouts of this machine when `account` runs the servers
    account: Account | None


def places_for(var: Path) -> Places:
    """The places that belong to the directory `var`, created where absent. Raises CannotRunError."""
    identity = hashlib.sha256(os.fsencode(var.resolve())).hexdigest()[:12]
    if os.geteuid() != 0:
        data = private_directory(var / "servers")
        sockets = _socket_directory(var, identity)
        return Places(data, sockets, sockets, var / "binaries", None)
    account = _service_account()
    home = passable_directory(_shared_home() / identity)
    return Places(
        private_directory(home / "servers", account),
        private_directory(home / "run", account),
        private_directory(home / "control"),
        passable_directory(_shared_home() / "binaries"),
        account,
    )


def private_directory(path: Path, owner: Account | None = None) -> Path:
    """Create `path` as a 0700 directory of `owner` (or of us); refuse one that somebody else could write to."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    uid = owner.uid if owner else os.geteuid()
    if owner and found.st_uid == 0:
        os.chown(path, owner.uid, owner.gid)
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
        raise CannotRunError(f"{path} is not a directory of the user that needs it: move it away")
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def passable_directory(path: Path) -> Path:
    """Create `path` as a 0755 directory whatever the umask says; one that is there already is left as it is."""
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o755)
    return path


def require_traversable(directory: Path) -> None:
    """Refuse a path that other accounts cannot pass through, rather than open it up for them."""
    for parent in [directory, *directory.parents]:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise CannotRunError(
                f"the database account cannot pass through {parent} (mode {stat.S_IMODE(parent.stat().st_mode):o}):"
                " run as an ordinary user instead"
            )


def remove_places(var: Path, places: Places) -> None:
    """Delete the servers' files that belong to `var`, wherever they lie. For temporary servers only."""
    shared = places.account is not None
    for path in (
        places.data,
        places.sockets,
        places.control,
        *([places.data.parent] if shared else []),
    ):
        shutil.rmtree(path, ignore_errors=True)


def _socket_directory(var: Path, identity: str) -> Path:
    candidates = [var.resolve() / "run"]
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        candidates.append(Path(runtime) / f"bursar-{identity}")
    candidates.append(Path(f"/tmp/bursar-{os.geteuid()}-{identity}"))  # noqa: S108 - private_directory checks its owner
    for candidate in candidates:
        if len(os.fsencode(candidate)) <= LONGEST_SOCKET_DIRECTORY and candidate.parent.is_dir():
            return private_directory(candidate)
    raise CannotRunError("no directory with a path short enough for a socket: set XDG_RUNTIME_DIR to a short one")


def _shared_home() -> Path:
    passable_directory(SHARED_HOME)
    found = SHARED_HOME.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise CannotRunError(f"{SHARED_HOME} must be a directory that only root can write to")
    require_traversable(SHARED_HOME)
    return SHARED_HOME


def _service_account() -> Account:
    """The account that runs the servers, created on first use: PostgreSQL refuses to run as root."""
    try:
        entry = pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        _create_account()
        entry = pwd.getpwnam(ACCOUNT_NAME)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _create_account() -> None:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", str(SHARED_HOME)]
    try:
        subprocess.run([*command, "--shell", "/bin/false", ACCOUNT_NAME], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        try:
            pwd.getpwnam(ACCOUNT_NAME)  # another run was quicker
        except KeyError:
            raise CannotRunError(
                f"PostgreSQL does not run as root and the system account {ACCOUNT_NAME} cannot be created:"
                " create it or run as an ordinary user"
            ) from failure
