"""A machine joins a running platform with one command, serves, and leaves; or is told in one line why it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from gpu_workers.enrolment import Enrolment, write_token
from gpu_workers.messages import Heartbeat, decode_heartbeat
from tests.client import ChatClient, text_of
from tests.services import running_services
from tests.stack import DEPLOYMENT, ROOT, Stack, running_stack, wait_for

# What the platform's own processes have, and a GPU host is not given.
OURS_ALONE = ("BURSAR_", "DJANGO_")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_services() as services, running_stack(services, tmp_path_factory.mktemp("join")) as running:
        yield running


@pytest.fixture(scope="module")
def token(stack: Stack) -> str:
    made = stack.manage("worker_token", DEPLOYMENT)
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.fixture
def join(stack: Stack, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Runs the command as another machine would: with no setting of the platform in its environment."""
    environment = {name: value for name, value in stack.environment.items() if not name.startswith(OURS_ALONE)}
    environment["BURSAR_RUN_DIRECTORY"] = str(tmp_path / "run")
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, token: str, **more: str) -> subprocess.Popen[str]:
        host = subprocess.Popen(
            [sys.executable, "-m", "gpu_workers.join", "--token-file", "-", "--engine", "simulated", *arguments],
            cwd=ROOT,
            env=environment | more,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=(tmp_path / f"host{len(started)}.log").open("w"),
            text=True,
        )
        started.append(host)
        assert host.stdin is not None
        host.stdin.write(token)
        host.stdin.close()
        return host

    yield run
    for host in started:
        host.terminate()
        host.wait(60)


def workers(stack: Stack) -> list[Heartbeat]:
    with Redis.from_url(stack.environment["BURSAR_VALKEY_URL"]) as valkey:
        beats = [valkey.get(key) for key in valkey.scan_iter("bursar:worker:*")]
    return [decode_heartbeat(beat) for beat in beats if isinstance(beat, bytes)]


def family(host: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(host.pid).children(recursive=True)


def serves(stack: Stack, host: subprocess.Popen[str]) -> bool:
    """Whether the worker among this command's children is ready; it names itself after its own process."""
    pids = {str(process.pid) for process in family(host)} if host.poll() is None else set()
    return any(beat.engine_ready and beat.worker.rsplit("-", 1)[1] in pids for beat in workers(stack))


async def test_a_host_that_joins_is_in_the_fleet_and_takes_traffic_until_it_leaves(
    stack: Stack, token: str, join: Callable[..., subprocess.Popen[str]]
) -> None:
    host = join("--broker", stack.environment["BURSAR_VALKEY_URL"], token=token)
    wait_for(lambda: serves(stack, host), "the host that joined serves")
    assert len([beat for beat in workers(stack) if beat.engine_ready and beat.deployment == DEPLOYMENT]) == 2

    stack.stop("worker")
    stack.stop("engine")
    async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
        events = await client.answer(parameters={"max_tokens": 8})
    assert events[-1]["type"] == "answer.finished", events[-1]
    assert text_of(events)

    left = family(host)
    host.send_signal(signal.SIGTERM)
    assert host.wait(60) == 0
    assert [process for process in left if process.is_running()] == []
    assert workers(stack) == []
    wait_for(lambda: httpx.get(f"{stack.url}/readyz").json()["checks"]["engine"] == "no worker", "nobody serves")
    stack.start("engine", "worker")
    stack.wait_ready()


@pytest.mark.parametrize("program", ["gpu_workers.app", "gpu_workers.supervisor"])
def test_when_one_of_its_programs_ends_the_host_ends_whole(
    program: str, stack: Stack, token: str, join: Callable[..., subprocess.Popen[str]]
) -> None:
    host = join("--broker", stack.environment["BURSAR_VALKEY_URL"], token=token)
    wait_for(lambda: serves(stack, host), "the host that joined serves")
    all_of_it = family(host)
    next(process for process in all_of_it if program in process.cmdline()).kill()
    assert host.wait(60) == 1
    wait_for(lambda: not any(process.is_running() for process in all_of_it), "nothing of it is left")


def test_a_host_that_is_killed_leaves_nothing_behind(
    stack: Stack, token: str, join: Callable[..., subprocess.Popen[str]]
) -> None:
    host = join("--broker", stack.environment["BURSAR_VALKEY_URL"], token=token)
    wait_for(lambda: serves(stack, host), "the host that joined serves")
    all_of_it = family(host)
    host.kill()
    host.wait()
    wait_for(lambda: not any(process.is_running() for process in all_of_it), "nothing of it is left")


def test_neither_token_nor_key_is_on_a_command_line_or_in_the_engines_environment(
    stack: Stack, token: str, join: Callable[..., subprocess.Popen[str]]
) -> None:
    host = join(token=token, BURSAR_VALKEY_URL=stack.environment["BURSAR_VALKEY_URL"])
    wait_for(lambda: serves(stack, host), "the host that joined serves")
    key = stack.environment["BURSAR_SEAL_KEY"]
    for process in [psutil.Process(host.pid), *family(host)]:
        words = " ".join(process.cmdline())
        assert token.strip() not in words
        assert key not in words
        assert stack.environment["BURSAR_VALKEY_URL"] not in words
        if "gpu_workers.engines.simulated" in words:
            assert key not in process.environ().values()


def refusal(*arguments: str, **environment: str) -> tuple[int, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(OURS_ALONE)}
    done = subprocess.run(
        [sys.executable, "-m", "gpu_workers.join", *arguments],
        cwd=ROOT,
        env=known | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_a_token_of_another_platform_is_refused(stack: Stack) -> None:
    foreign = write_token(Enrolment(bytes(range(32)), DEPLOYMENT))
    broker = stack.environment["BURSAR_VALKEY_URL"]
    code, said = refusal("--broker", broker, "--token", foreign, "--engine", "simulated")
    assert (code, said) == (1, "join: the platform at this broker has another seal key: make a new token there.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--token", "bwt_hidden"), "not complete"),
        (("--token", "hidden"), "not a worker token"),
        (("--token-file", "/nowhere/hidden"), "cannot be read"),
        (("--token-file", "-"), "not a worker token"),
        (("--token", write_token(Enrolment(bytes(32), "some"))), "BURSAR_VALKEY_URL is not set"),
        (
            ("--token", write_token(Enrolment(bytes(32), "some")), "--broker", "redis://:hidden@127.0.0.1:1/0"),
            "the broker does not answer",
        ),
    ],
)
def test_what_cannot_join_is_told_why_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    code, line = refusal(*arguments)
    assert code == 1
    assert line.startswith("join: ")
    assert said in line
    assert line.count("\n") == 1
    assert "hidden" not in line
    assert "bwt_" not in line


def test_a_mistyped_command_line_is_refused_without_its_secrets() -> None:
    token = write_token(Enrolment(bytes(32), "some"))
    code, said = refusal("--tokn", token, "--token-file", "-", "--brokr=rediss://:hidden@broker/0")
    assert code == 2
    assert "--tokn" in said
    assert token not in said
    assert "hidden" not in said


def test_make_join_passes_everything_on() -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith((*OURS_ALONE, "PYTHON"))}
    words = ["make", "join", "ENGINE=simulated", "ARGS=--token-file -"]
    done = subprocess.run(
        words, cwd=ROOT, env=known, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300
    )
    assert "join: this is not a worker token" in done.stderr
