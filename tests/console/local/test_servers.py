"""The private PostgreSQL and Valkey: reachable with a password over a socket, and in no other way."""

import os
import stat
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from console.local.errors import CannotRunError
from tests.services import Services, running_services


@pytest.fixture(scope="module")
def services():
    with running_services() as services:
        yield services


def test_postgres_answers_with_its_password(services: Services):
    with psycopg.connect(services.postgres.url()) as connection:
        row = connection.execute("SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    assert row == ("bursar", False)


def test_postgres_refuses_a_wrong_password(services: Services):
    url = services.postgres.url().replace(services.postgres.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)


def test_postgres_keeps_what_it_acknowledged(services: Services):
    with psycopg.connect(services.postgres.url()) as connection:
        row = connection.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')").fetchone()
    assert row == ("on", "on")


def test_valkey_answers_with_its_password(services: Services):
    with redis.Redis.from_url(services.valkey.url()) as client:
        assert client.ping()
        settings = client.config_get("*")
    assert settings["appendonly"] == "yes"
    assert settings["maxmemory-policy"] == "noeviction"


def test_valkey_refuses_to_work_without_its_password(services: Services):
    once = Retry(NoBackoff(), 0)
    with (
        redis.Redis(unix_socket_path=str(services.valkey.socket), retry=once) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.set("a", "b")


def test_nothing_listens_on_tcp(services: Services):
    for process in services.processes.values():
        assert [one for one in psutil.Process(process.pid).net_connections("inet") if one.status == "LISTEN"] == []


def test_sockets_and_data_are_private(services: Services):
    for directory in (services.postgres.places.sockets, services.postgres.data, services.valkey.data):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((services.valkey.data / "valkey.conf").stat().st_mode) == 0o600


def test_no_password_is_in_a_command_line_or_a_servers_environment(services: Services):
    secrets = (services.postgres.password, services.postgres.superuser_password, services.valkey.password)
    for process in services.processes.values():
        seen = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
        assert not any(secret.encode() in seen for secret in secrets)


@pytest.mark.skipif(os.geteuid() != 0, reason="what is done differently for root")
def test_root_runs_them_as_an_unprivileged_account(services: Services):
    for process in services.processes.values():
        assert psutil.Process(process.pid).username() == "bursar-db"


def test_postgres_recovers_from_a_crash(services: Services):
    with psycopg.connect(services.postgres.url()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    services.kill(services.postgres)
    assert not services.postgres.is_ready()
    services.start(services.postgres)
    with psycopg.connect(services.postgres.url()) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)


def test_valkey_recovers_from_a_crash(services: Services):
    with redis.Redis.from_url(services.valkey.url()) as client:
        client.set("kept", "1")
        client.execute_command("WAITAOF", 1, 0, 5000)
    services.kill(services.valkey)
    assert not services.valkey.is_ready()
    services.start(services.valkey)
    with redis.Redis.from_url(services.valkey.url()) as client:
        assert client.get("kept") == b"1"


def test_a_pid_file_that_names_another_process_does_not_block_the_start(services: Services):
    services.kill(services.postgres)
    (services.postgres.data / "postmaster.pid").write_text(f"{os.getpid()}\n{services.postgres.data}\n")
    services.start(services.postgres)
    assert services.postgres.is_ready()


def test_an_orphaned_server_is_ended_before_a_new_one_starts(services: Services):
    orphan = services.processes[services.postgres.name]
    services.start(services.postgres)
    assert orphan.wait(20) == 0
    assert services.postgres.is_ready()


def test_a_lost_superuser_password_is_one_sentence(services: Services):
    from dataclasses import replace

    with pytest.raises(CannotRunError, match="restore that file"):
        replace(services.postgres, superuser_password="lost").is_ready()


def test_an_interrupted_initdb_is_begun_anew(tmp_path):
    from console.local.places import places_for, remove_places
    from console.local.postgres import Postgres

    places = places_for(tmp_path)
    try:
        (places.data / "postgres.partial").mkdir()
        (places.data / "postgres.partial" / "PG_VERSION").write_text("18\n")
        postgres = Postgres(places, "one", "two")
        postgres.prepare()
        assert (postgres.data / "PG_VERSION").exists()
        assert not (places.data / "postgres.partial").exists()
    finally:
        remove_places(tmp_path, places)
