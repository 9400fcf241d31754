"""What the person at the terminal sees, and what happens when the terminal goes away."""

import os
import signal
import sys
import time

import pytest

from console.local.terminal import Hangup, Progress, complain


@pytest.fixture
def terminal():
    master, slave = os.openpty()
    yield master, slave
    os.close(slave)


def test_a_terminal_that_is_there_has_not_hung_up(terminal):
    master, slave = terminal
    assert not Hangup(slave).happened()
    os.close(master)


def test_a_terminal_that_goes_away_is_noticed(terminal):
    master, slave = terminal
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        hangup = Hangup(slave)
        os.close(master)
        assert hangup.happened()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nohup_says_to_go_on(terminal):
    master, slave = terminal
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        hangup = Hangup(slave)
        os.close(master)
        assert not hangup.happened()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_closed_pipe_is_no_hangup():
    reader, writer = os.pipe()
    hangup = Hangup(reader)
    os.close(writer)
    assert not hangup.happened()
    os.close(reader)


def test_a_terminal_that_refuses_a_line_stops_nothing(monkeypatch):
    class Gone:
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

        def flush(self) -> None:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    complain("nobody reads this")


def test_progress_is_said_while_a_step_takes_long(capsys):
    progress = Progress("Installing", "about 1 min", every_s=0.05)
    progress.tick("at django")
    time.sleep(0.06)
    progress.tick("at numpy")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("at numpy")
