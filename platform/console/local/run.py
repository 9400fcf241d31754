"""Runs all of Bursar on this machine until Ctrl-C: `python -m console.local.run`, which is what `make run` does."""

import os
import sys

from console.local import locks, orphans
from console.local.composition import compose
from console.local.errors import CannotRunError
from console.local.installation import REFUSAL, RUN_LOCK, explain
from console.local.launch import Launch
from console.local.places import ROOT, private_directory
from console.local.terminal import complain


def main() -> int:
    """Returns the exit code: 0 after an orderly stop, 1 with a sentence on standard error otherwise."""
    os.umask(0o077)
    try:
        var = private_directory(ROOT / "var")
        if RUN_LOCK not in os.environ:
            locks.hold(var / "run.lock", REFUSAL)
        orphans.adopt_orphans()
        return Launch(var, compose(var, os.environ)).run()
    except CannotRunError as failure:
        complain(str(failure))
    except OSError as failure:
        complain(explain(failure))
    return 1


if __name__ == "__main__":
    sys.exit(main())
