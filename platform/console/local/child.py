"""Become another program that is told to stop when its parent dies. Standard library only; run as a script.

Usage: python child.py SIGNAL USER PROGRAM [ARGUMENT ...], where USER is "-" or "uid:gid".
"""

import ctypes
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


def main(arguments: list[str]) -> None:
    parent = os.getppid()
    name, user, *command = arguments
    os.umask(0o077)
    if user != "-":
        become(user)
    # After the change of user: the kernel forgets the request when credentials change.
    die_with_parent(parent, signal.Signals[name])
    os.execv(command[0], command)  # noqa: S606 - the whole point


if __name__ == "__main__":
    main(sys.argv[1:])
