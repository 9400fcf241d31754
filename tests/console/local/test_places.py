"""The servers' files are private, and no directory that was there is opened up for them."""

import os
import stat

import pytest

from console.local import places
from console.local.errors import CannotRunError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="what is done differently for root")


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def found(tmp_path):
    found = places.places_for(tmp_path / "var")
    yield found
    places.remove_places(tmp_path / "var", found)


def test_data_and_sockets_are_private(found):
    assert mode(found.data) == mode(found.sockets) == mode(found.control) == 0o700


def test_they_are_the_same_the_next_time(found, tmp_path):
    assert places.places_for(tmp_path / "var") == found


def test_two_checkouts_have_different_ones(found, tmp_path):
    other = places.places_for(tmp_path / "other")
    try:
        assert {other.data, other.sockets}.isdisjoint({found.data, found.sockets})
    finally:
        places.remove_places(tmp_path / "other", other)


def test_a_socket_path_stays_below_the_limit_in_a_deep_checkout(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100) / "var"
    deep.mkdir(parents=True)
    found = places.places_for(deep)
    try:
        assert len(os.fsencode(found.sockets / ".s.PGSQL.5432.lock")) <= 107
    finally:
        places.remove_places(deep, found)


def test_a_directory_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotRunError):
        places.private_directory(tmp_path / "link")


@as_root
def test_a_path_that_others_cannot_pass_is_refused_and_not_opened(tmp_path):
    closed = tmp_path / "closed"
    (closed / "home").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(CannotRunError, match="cannot pass through"):
        places.require_traversable(closed / "home")
    assert mode(closed) == 0o700


@as_root
def test_a_shared_home_that_others_can_write_to_is_refused(tmp_path, monkeypatch):
    shared = tmp_path / "bursar"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr(places, "SHARED_HOME", shared)
    with pytest.raises(CannotRunError, match="only root can write to"):
        places.places_for(tmp_path / "var")
    assert mode(shared) == 0o777


@as_root
def test_the_modes_of_the_directories_above_stay_as_they_were(tmp_path):
    above = [places.SHARED_HOME.parent, places.SHARED_HOME.parent.parent]
    before = [mode(path) for path in above]
    found = places.places_for(tmp_path / "var")
    places.remove_places(tmp_path / "var", found)
    assert [mode(path) for path in above] == before


@as_root
def test_a_strict_umask_does_not_lock_the_servers_account_out(tmp_path):
    before = os.umask(0o077)
    try:
        found = places.places_for(tmp_path / "var")
        assert mode(found.data.parent) == 0o755
    finally:
        os.umask(before)
        places.remove_places(tmp_path / "var", found)
