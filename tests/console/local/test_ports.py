"""The port is the one asked for or a free one; a taken one is one clear line."""

import socket

import pytest

from console.local import ports
from console.local.errors import CannotRunError


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_that_was_asked_for_is_refused(taken):
    with pytest.raises(CannotRunError, match=f"port {taken} is taken"):
        ports.choose_port("127.0.0.1", str(taken))


def test_the_next_free_port_follows_a_taken_default(taken, monkeypatch):
    monkeypatch.setattr(ports, "DEFAULT_PORT", taken)
    monkeypatch.setattr(ports, "LAST_ALTERNATIVE", taken + 20)
    assert taken < ports.choose_port("127.0.0.1", "") <= taken + 20


def test_it_says_when_every_default_is_taken(taken, monkeypatch):
    monkeypatch.setattr(ports, "DEFAULT_PORT", taken)
    monkeypatch.setattr(ports, "LAST_ALTERNATIVE", taken)
    with pytest.raises(CannotRunError, match="name one with PORT="):
        ports.choose_port("127.0.0.1", "")


@pytest.mark.parametrize("wanted", ["0", "65536", "-1", "http", "8000; id", "٨٠٠٠", "1" * 5000])
def test_nonsense_is_refused(wanted):
    with pytest.raises(CannotRunError, match="1 to 65535"):
        ports.choose_port("127.0.0.1", wanted)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(CannotRunError):
        ports.choose_port("no-such-host.invalid", "8000")


def test_the_engine_gets_a_free_port():
    assert not ports.why_taken("127.0.0.1", ports.free_port())
