"""No descendant outlives a run, whoever its parent was."""

import os
import signal
import subprocess
import sys
import time

import psutil

ADOPTER = """
import os, subprocess, sys, time
from console.local import orphans
orphans.adopt_orphans()
# A child that starts a grandchild in a session of its own and ends at once.
grandchild = subprocess.check_output([sys.executable, "-c", '''
import subprocess, sys
print(subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL).pid)
'''])
print(int(grandchild), flush=True)
sys.stdin.readline()
orphans.end_all()
"""


def test_an_orphan_is_adopted_and_ended():
    with subprocess.Popen([sys.executable, "-c", ADOPTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as adopter:
        assert adopter.stdout
        assert adopter.stdin
        orphan = psutil.Process(int(adopter.stdout.readline()))
        assert orphan.ppid() == adopter.pid
        adopter.stdin.write(b"\n")
        adopter.stdin.flush()
        assert adopter.wait(20) == 0
    assert not orphan.is_running()


def test_a_known_child_is_spared():
    code = (
        "import subprocess; from console.local import orphans; orphans.adopt_orphans();"
        "child = subprocess.Popen(['sleep', '300']); orphans.end_orphans(child.pid);"
        "print(child.poll()); orphans.end_all()"
    )
    assert subprocess.check_output([sys.executable, "-c", code]) == b"None\n"


def test_a_process_that_stops_with_its_parent_gets_a_signal():
    code = (
        "import os, subprocess, sys; child = subprocess.Popen([sys.executable, '-c',"
        "'from console.local import orphans; import time; orphans.stop_with_parent(); print(1, flush=True);"
        "time.sleep(300)'], stdout=subprocess.PIPE); child.stdout.readline(); print(child.pid, flush=True);"
        "import time; time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
