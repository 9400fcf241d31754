"""Child processes that never outlive us."""

import sys
from pathlib import Path
from signal import Signals

from console.local.places import Account

CHILD = Path(__file__).with_name("child.py")


def as_child(command: list[str], stop_signal: Signals, account: Account | None = None, keep: str = "*") -> list[str]:
    """Wrap `command`: it runs as `account`, gets `stop_signal` when its parent dies, and sees of our settings
    (BURSAR_...) only those whose names match the comma-separated patterns in `keep`."""
    user = f"{account.uid}:{account.gid}" if account else "-"
    return [sys.executable, "-I", "-S", str(CHILD), stop_signal.name, user, keep, *command]
