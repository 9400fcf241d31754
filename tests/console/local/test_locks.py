"""Two runs do not share a checkout."""

import subprocess
import sys

import pytest

from console.local import locks
from console.local.errors import CannotRunError


def test_a_second_holder_is_refused(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from console.local import locks;"
        "locks.hold(Path(sys.argv[1]), ''); print('held', flush=True); time.sleep(60)"
    )
    path = tmp_path / "var" / "run.lock"
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CannotRunError, match="running already"):
            locks.hold(path, "running already")
        holder.kill()
    locks.hold(path, "a lock dies with its holder, even one that was killed")
