"""Install what Bursar needs into the checkout, then start what was asked for.

Run by the system's Python with the standard library only. This file also has to parse on Pythons that are too old, so
that they get a sentence instead of a syntax error: no f-strings, no annotations of variables, no newer syntax.
"""

import os
import sys

OLDEST = (3, 11)
NEWEST = (3, 14)


def refuse(reason: str) -> None:
    sys.stderr.write("bursar: " + reason + "\n")
    sys.exit(1)


def require_python(version: "tuple[int, ...]") -> None:
    """Refuse a Python that the pinned packages do not exist for."""
    if not OLDEST <= version <= NEWEST:
        found = ".".join(str(part) for part in version)
        wanted = "{} to {}".format(*(".".join(str(part) for part in bound) for bound in (OLDEST, NEWEST)))
        refuse(
            "Python " + found + " is not supported, Bursar needs " + wanted + ": make PYTHON=/path/to/python3.11 ..."
        )


def require_modules() -> None:
    """Refuse a Python that its distributor split up: Debian ships venv apart."""
    import importlib.util

    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        refuse("this Python has no venv module: install it (on Debian and Ubuntu: apt-get install python3-venv)")


if __name__ == "__main__":
    require_python(sys.version_info[:2])
    require_modules()
    # This directory's own modules must not stand in for the standard library's.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from console.local.installation import main

    sys.exit(main(sys.argv[1:]))
