"""Secrets are generated once, kept, and readable by nobody else."""

import re
import stat

import pytest

from console.local import credentials
from console.local.errors import CannotRunError


@pytest.fixture
def file(tmp_path):
    return tmp_path / "secrets.env"


def test_they_are_generated_once_and_kept(file, tmp_path):
    first = credentials.load_or_generate(file, tmp_path / "postgres")
    assert credentials.load_or_generate(file, tmp_path / "postgres") == first
    assert set(first) == set(credentials.GENERATED)
    assert len(set(first.values())) == len(first)


def test_the_file_is_private_even_when_it_was_opened_up(file, tmp_path):
    credentials.load_or_generate(file, tmp_path / "postgres")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    credentials.load_or_generate(file, tmp_path / "postgres")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_secret_that_a_newer_release_needs_is_added(file, tmp_path):
    known = credentials.load_or_generate(file, tmp_path / "postgres")
    credentials.write(file, {name: value for name, value in known.items() if name != "BURSAR_API_KEY"})
    again = credentials.load_or_generate(file, tmp_path / "postgres")
    assert again["BURSAR_API_KEY"] != known["BURSAR_API_KEY"]
    assert again["BURSAR_RECORD_KEY"] == known["BURSAR_RECORD_KEY"]


def test_lost_keys_of_an_existing_database_are_not_replaced(file, tmp_path):
    (tmp_path / "postgres").mkdir()
    with pytest.raises(CannotRunError, match="restore the file"):
        credentials.load_or_generate(file, tmp_path / "postgres")
    assert not file.exists()


def test_a_file_of_another_form_is_refused_without_showing_it(file, tmp_path):
    file.write_text("BURSAR_API_KEY=abc\nhunter2 is my password\n")
    with pytest.raises(CannotRunError, match="line 2") as failure:
        credentials.load_or_generate(file, tmp_path / "postgres")
    assert "hunter2" not in str(failure.value)


def test_keys_and_passwords_have_their_form():
    assert re.fullmatch(r"bsk_[A-Za-z0-9_-]{43}", credentials.generate_api_key())
    assert re.fullmatch(r"[a-z0-9]{5}(-[a-z0-9]{5}){3}", credentials.generate_password())


def test_values_survive_the_shell_and_us(file):
    values = {"BURSAR_URL": "unix:///run/valkey.sock?password=a&db=0", "BURSAR_EMPTY": "", "BURSAR_X": "it's $HOME #1"}
    credentials.write(file, values)
    assert credentials.read(file) == values
