"""`manage.py ask` against the running product."""

from __future__ import annotations

import subprocess
import sys

from tests.stack import MODEL, ROOT, Stack


def ask(stack: Stack, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", "ask", *arguments]
    environment = stack.environment | changes
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_it_prints_the_answer_with_usage_latency_and_receipt(live_stack: Stack) -> None:
    done = ask(live_stack, "why is the sky blue?", "--max-tokens", "12")

    assert done.returncode == 0, done.stderr
    answer, *facts = done.stdout.splitlines()
    assert answer == "[simulated] this answer was not written by a model. it has the"
    assert [line.split()[0] for line in facts] == ["model", "usage", "latency", "receipt"]
    assert MODEL in facts[0]
    assert "12 tokens" in facts[1]


def test_a_refusal_is_an_error(live_stack: Stack) -> None:
    done = ask(live_stack, "hello", "--model", "gpt-17")
    assert done.returncode == 1
    assert "model_not_found" in done.stderr


def test_a_wrong_key_and_a_server_that_is_not_there_are_errors_of_one_line(live_stack: Stack) -> None:
    for done in (
        ask(live_stack, "hello", BURSAR_API_KEY=f"bsk_{'x' * 43}"),
        ask(live_stack, "hello", BURSAR_URL="http://127.0.0.1:9"),
    ):
        assert done.returncode == 1
        assert len(done.stderr.strip().splitlines()) == 1
        assert "Traceback" not in done.stderr
