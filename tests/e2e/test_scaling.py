"""Replicas that come and go by the deployment's policy, as processes of this host, through the scheduler's own task."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import httpx
import psutil
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpu_workers.identifiers import uuid7
from tests.services import running_services
from tests.stack import DEPLOYMENT, MODEL, Stack, running_stack, wait_for

TOKEN = "m" * 40
PATIENCE_S = 90.0
INSERT = """
    INSERT INTO inference_scalingpolicy (id, deployment_id, is_enabled, driver, namespace, name, region, at_least,
        at_most, across_zones, queue_ms, good_percent, down_after_s, looks, failures)
    SELECT %s, id, true, 'local', '', '', '', 2, 3, false, 60000, 99, 60, '[]', 0
    FROM inference_deployment WHERE slug = %s
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {"BURSAR_METRICS_TOKEN": TOKEN}
    directory = tmp_path_factory.mktemp("scaling")
    with running_services() as services, running_stack(services, directory, scheduler=True, **settings) as running:
        for keeper in ("replicas", "other-replicas"):
            running.commands[keeper] = [sys.executable, "-m", "gpu_workers.local_replicas"]
        running.start("replicas")
        yield running


def figures(stack: Stack) -> dict[tuple[str, ...], float]:
    page = httpx.get(f"{stack.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert page.status_code == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }


def ready(stack: Stack) -> float:
    return figures(stack)["bursar_deployment_replicas", DEPLOYMENT, "ready"]


def sql(stack: Stack, statement: str, *values: object) -> None:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"], autocommit=True) as connection:
        connection.execute(statement, values)


def test_figures_are_for_who_has_the_token(stack: Stack) -> None:
    assert httpx.get(f"{stack.url}/metrics").status_code == 401
    assert httpx.get(f"{stack.url}/metrics", headers={"Authorization": "Bearer x"}).status_code == 401
    assert figures(stack)["bursar_deployment_answers", DEPLOYMENT] == 0


def test_replicas_come_serve_and_go_with_what_is_wanted(stack: Stack) -> None:
    assert ready(stack) == 1
    sql(stack, INSERT, uuid7(), DEPLOYMENT)
    wait_for(lambda: ready(stack) == 2, "a second replica", PATIENCE_S)

    stack.stop("worker")
    stack.stop("engine")
    wait_for(lambda: ready(stack) == 1, "the replica is there alone", PATIENCE_S)
    answer = httpx.post(
        f"{stack.url}/v1/chat/completions",
        json={"model": MODEL, "messages": [{"role": "user", "content": "Hello?"}]},
        headers={"Authorization": f"Bearer {stack.api_key}"},
        timeout=60,
    )
    assert answer.status_code == 200
    stack.start("engine", "worker")
    wait_for(lambda: ready(stack) == 2, "both again", PATIENCE_S)

    family = psutil.Process(stack.processes["replicas"].pid).children(recursive=True)
    sql(stack, "UPDATE inference_scalingpolicy SET at_least = 1, at_most = 1")
    wait_for(lambda: ready(stack) == 1, "one replica less", PATIENCE_S)
    wait_for(lambda: not any(one.is_running() for one in family), "none of its processes is left", PATIENCE_S)


def test_a_keeper_that_is_killed_takes_its_replicas_along_and_another_takes_over(stack: Stack) -> None:
    sql(stack, "UPDATE inference_scalingpolicy SET at_least = 2, at_most = 3")
    wait_for(lambda: ready(stack) == 2, "a second replica", PATIENCE_S)
    stack.start("other-replicas")
    family = psutil.Process(stack.processes["replicas"].pid).children(recursive=True)
    assert len(family) > 2
    stack.kill("replicas")
    wait_for(lambda: not any(one.is_running() for one in family), "its replicas have gone", PATIENCE_S)
    other = psutil.Process(stack.processes["other-replicas"].pid)
    wait_for(lambda: bool(other.children()) and ready(stack) == 2, "the other has made one", PATIENCE_S)
