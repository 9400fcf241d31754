"""Become another program that is told to stop when its parent dies. Standard library only; run as a script.

Usage: python child.py SIGNAL USER KEEP PROGRAM [ARGUMENT ...], where USER is "-" or "uid:gid" and KEEP lists patterns
of the BURSAR_ variables that the program may see.
"""

import ctypes
import fnmatch
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Ask the kernel to send us `number` when the process `parent` ends; exit if it has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)


def become(user: str) -> None:
    """Drop root for the account given as "uid:gid"."""
    uid, gid = (int(part) for part in user.split(":"))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def forget_settings(keep: str) -> None:
    """Remove every BURSAR_ variable that matches none of the comma-separated patterns."""
    patterns = keep.split(",")
    for name in [name for name in os.environ if name.startswith("BURSAR_")]:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            del os.environ[name]


def main(arguments: list[str]) -> None:
    parent = os.getppid()
    name, user, keep, *command = arguments
    os.umask(0o077)
    forget_settings(keep)
    if user != "-":
        become(user)
    # After the change of user: the kernel forgets the request when credentials change.
    die_with_parent(parent, signal.Signals[name])
    os.execvp(command[0], command)  # noqa: S606 - the whole point


if __name__ == "__main__":
    main(sys.argv[1:])
