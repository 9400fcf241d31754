"""Each variable that is set is read by the code, each that is needed is set, and each secret is documented."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import manifests
from tests.deploy.manifests import VARIABLE, Container
from tests.stack import ROOT

DOCUMENTED = (ROOT / "docs" / "operations.md").read_text()
WORKER_CODE = ("gpu_workers",)
PLATFORM_CODE = (*WORKER_CODE, "inference", "compliance", "dashboards", "platform/console")
# `make run` reads and sets variables of its own: no process of a deployment does.
LOCAL_ONLY = ROOT / "platform" / "console" / "local"
VALUES = {
    ("bursar-broker", "seal-key"): "11" * 32,
    ("bursar-broker", "valkey-url"): "redis://127.0.0.1:1/0",
    ("bursar-engine", "api-key"): "some",
    ("bursar-platform", "database-url"): "postgresql:///none",
    ("bursar-platform", "secret-key"): "s" * 40,
    ("bursar-platform", "record-key"): "22" * 32,
}


def read_by(*folders: str) -> set[str]:
    """Every BURSAR_ variable that code in these folders names."""
    return {name for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) for name in _names(path)}


def _names(path: Path) -> set[str]:
    if path.is_relative_to(LOCAL_ONLY):
        return set()
    constants = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    return {value for value in constants if isinstance(value, str) and VARIABLE.match(value)}


def ours(names: object) -> set[str]:
    return {name for name in names if name.startswith("BURSAR_")}  # type: ignore[attr-defined]


def code_of(one: Container) -> tuple[str, ...]:
    return WORKER_CODE if one.workload == "bursar-worker" else PLATFORM_CODE


@pytest.mark.parametrize("one", manifests.containers(), ids=lambda one: one.name)
def test_every_variable_that_a_container_is_given_is_read_by_its_code(one: Container) -> None:
    given = ours(
        one.environment(
            VALUES | {("bursar-platform", name): "" for name in ("mail-url", "alert-secret", "metrics-token")}
        )
    )
    assert given - read_by(*code_of(one)) == set()


def test_every_variable_of_the_compose_file_is_read_by_its_code() -> None:
    for name, service in manifests.compose()["services"].items():
        folders = WORKER_CODE if name == "worker" else PLATFORM_CODE
        assert ours(service.get("environment", {})) - read_by(*folders) == set(), name


def test_every_variable_is_in_the_operators_list() -> None:
    text = (ROOT / "docs" / "operator.md").read_text()
    given = {name for one in manifests.containers() for name in ours(one.environment(VALUES))}
    assert {name for name in given if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("source", ["kubernetes", "compose"])
def test_a_worker_is_given_all_that_it_needs(source: str) -> None:
    given = manifests.container("bursar-worker/worker").environment(VALUES)
    if source == "compose":
        given = {**given, **{name: _filled(value) for name, value in compose_environment("worker").items()}}
        assert set(given) == set(compose_environment("worker"))
    # The worker's own settings, read as it reads them, from nothing but what it is given.
    known = {name: value for name, value in os.environ.items() if not name.startswith("BURSAR_")}
    code = "from gpu_workers.settings import load; print(load().engine_url)"
    done = subprocess.run([sys.executable, "-c", code], env=known | given, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "http://127.0.0.1:8000/v1"


def compose_environment(service: str) -> dict[str, str]:
    environment: dict[str, str] = manifests.compose()["services"][service]["environment"]
    return environment


def _filled(value: str) -> str:
    """As compose fills in a variable: with its default, or with something that fits."""
    return re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda found: found[2] or ("11" * 32), value)


def test_the_scheduler_is_given_what_web_processes_are() -> None:
    web = ours(manifests.container("bursar-web/web").environment(VALUES))
    assert web - ours(manifests.container("bursar-scheduler/scheduler").environment(VALUES)) == set()
    assert ours(compose_environment("web")) - ours(compose_environment("scheduler")) == set()


def test_workers_are_given_nothing_of_the_database_or_the_record() -> None:
    for given in (manifests.container("bursar-worker/worker").environment(VALUES), compose_environment("worker")):
        assert not {"BURSAR_DATABASE_URL", "BURSAR_RECORD_KEY", "BURSAR_SECRET_KEY"} & set(given)


def test_every_secret_that_is_used_is_documented_and_no_other() -> None:
    used = {secret for one in manifests.containers() for secret in one.secrets()}
    listed = set(re.findall(r"^\| `(bursar-[a-z]+)` \| `([a-z-]+)` \|", DOCUMENTED, re.MULTILINE))
    assert used == listed


def test_every_variable_that_compose_asks_for_is_in_its_example() -> None:
    text = (manifests.DEPLOY / "compose" / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)", text))
    example = (manifests.DEPLOY / "compose" / "example.env").read_text()
    given = dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE))
    assert asked == set(given)
    secret = {name for name in given if name.endswith(("_PASSWORD", "_KEY", "MAIL_URL"))}
    assert {name for name in secret if given[name]} == set()
