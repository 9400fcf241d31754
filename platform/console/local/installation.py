"""What each purpose needs installed, in order. A second call finds it complete and leaves it alone."""

import argparse
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from console.local import browser, engine_environment, environments, locks, model, orphans
from console.local.engine_choice import first_model, read_wish
from console.local.errors import CannotRunError
from console.local.places import ROOT, private_directory
from console.local.ports import choose_port, wanted_host, wanted_port
from console.local.terminal import complain, say
from console.local.workspace import workspace_in

RUN_LOCK = "BURSAR_RUN_LOCK"
REFUSAL = "Bursar is running from this checkout already: stop that run first"


def main(arguments: Sequence[str]) -> int:
    """Install for a purpose, then become the program given after "--". Returns the exit code where there is none."""
    options = _parse(arguments)
    try:
        var = private_directory(ROOT / "var")
        if options.purpose == "run":
            orphans.stop_with_parent()
            _hold_run_lock(var)
            _check_wish()
        _install(options, var)
    except CannotRunError as failure:
        complain(str(failure))
        return 1
    except OSError as failure:
        complain(explain(failure))
        return 1
    except KeyboardInterrupt:
        complain("stopped; what was complete stays installed")
        return 130
    if options.program:
        python = environments.PLATFORM.python
        os.execv(python, [str(python), *options.program])  # noqa: S606 - our own command line
    return 0


def explain(failure: OSError) -> str:
    """One sentence for an error of the operating system."""
    if failure.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: free some space and run again"
    if failure.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{failure.filename or ROOT} cannot be written to by this user"
    return f"{failure.strerror or failure}: {failure.filename or ROOT}"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="install.py")
    parser.add_argument("purpose", choices=["run", "join", "test", "lint"])
    parser.add_argument("program", nargs="*")
    return parser.parse_args(arguments)


def _hold_run_lock(var: Path) -> None:
    """Taken before the installation and inherited by the run that follows it: no second run comes in between."""
    descriptor = locks.hold(var / "run.lock", REFUSAL)
    os.set_inheritable(descriptor, True)
    os.environ[RUN_LOCK] = str(descriptor)


def _check_wish() -> None:
    """Refuse before minutes of installing what would be refused after them. Raises CannotRunError."""
    wish = read_wish(os.environ)
    if wish.kind == "openai" and not wish.model:
        first_model(wish)
    choose_port(wanted_host(os.environ), wanted_port(os.environ))


def _install(options: argparse.Namespace, var: Path) -> None:
    wants_tests = options.purpose in ("test", "lint")
    wants_engine = options.purpose == "test" or (
        options.purpose in ("run", "join") and read_wish(os.environ).needs_vllm
    )
    wants_model = wants_engine and options.purpose != "join"  # a host that joins brings the weights it is for
    steps = [environments.PLATFORM.is_complete, environments.TESTS.is_complete if wants_tests else None]
    steps += [engine_environment.is_complete] if wants_engine else []
    steps += [lambda: model.is_prepared(var)] if wants_model else []
    steps += [browser.is_present] if options.purpose == "test" else []
    if all(step() for step in steps if step):
        return
    if wants_engine and not engine_environment.is_complete():
        say("first everything is installed into this directory: about 4 minutes and 3.5 GB, once")
    lock = locks.hold(var / "install.lock", "another installation is going on in this checkout: wait for its end")
    with workspace_in(var) as workspace:
        environments.PLATFORM.ensure(workspace)
        if wants_tests:
            environments.TESTS.ensure(workspace)
        if wants_engine:
            engine_environment.ensure(workspace)
        if wants_model:
            model.ensure(var, workspace)
        if options.purpose == "test":
            browser.ensure(workspace)
    os.close(lock)
