"""The component by which the platform sets the number of workers: what it may do, and that nobody else says it too."""

from __future__ import annotations

import shutil
from pathlib import Path

import kubernetes_validate
import pytest

from tests.deploy import manifests
from tests.deploy.manifests import KUBERNETES, Object
from tests.deploy.test_kubernetes import OLDEST, build, needs_kubectl, title

FOLDER = KUBERNETES / "platform-scaling"
OBJECTS = manifests.documents(FOLDER / "access.yaml")


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("one", OBJECTS, ids=title)
def test_it_is_valid_by_the_published_schema(one: Object, version: str) -> None:
    assert kubernetes_validate.validate(one, version, strict=True) == version.removesuffix(".0")


def test_it_may_set_the_scale_of_the_workers_and_nothing_else() -> None:
    (role,) = [one for one in OBJECTS if one["kind"] == "Role"]
    (rule,) = role["rules"]
    assert rule == {
        "apiGroups": ["apps"],
        "resources": ["deployments/scale"],
        "resourceNames": [manifests.named("Deployment", "bursar-worker")["metadata"]["name"]],
        "verbs": ["get", "patch"],
    }


@needs_kubectl
def test_the_scheduler_has_the_account_and_the_workers_no_number(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    overlay = copy / "scaled"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("resources: [../base]\ncomponents: [../platform-scaling]\n")
    built = {title(one): one for one in build(overlay)}
    scheduler = built["Deployment-bursar-scheduler"]["spec"]["template"]["spec"]
    assert (scheduler["serviceAccountName"], scheduler["automountServiceAccountToken"]) == ("bursar-scaler", True)
    assert built["Deployment-bursar-web"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert "replicas" not in built["Deployment-bursar-worker"]["spec"]
    assert built["RoleBinding-bursar-scaler"]["subjects"][0]["namespace"] == "bursar"
