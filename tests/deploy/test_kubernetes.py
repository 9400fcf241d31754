"""The Kubernetes manifests: valid by Kubernetes's own schemas, and each thing they name is there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions

from tests.deploy import manifests
from tests.deploy.manifests import KUBERNETES, WORKLOADS, Container, Object
from tests.stack import ROOT

# The schemas of a minor release go by its first patch.
OLDEST = "1.30.0"  # the first with every field that is used here
OBJECTS = manifests.every_object()


def title(one: Object | Container) -> str:
    return one.name if isinstance(one, Container) else f"{one['kind']}-{one['metadata']['name']}"


each_object = pytest.mark.parametrize("one", OBJECTS, ids=title)
each_container = pytest.mark.parametrize("one", manifests.containers(), ids=title)
each_workload = pytest.mark.parametrize("one", manifests.of_kind(*WORKLOADS), ids=title)


@each_object
@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_it_is_valid_by_the_published_schema(one: Object, version: str) -> None:
    assert version in all_versions()
    assert kubernetes_validate.validate(one, version, strict=True) == version.removesuffix(".0")


def test_the_schemas_refuse_what_is_misspelt() -> None:
    wrong = {**manifests.named("Deployment", "bursar-web"), "spek": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, OLDEST, strict=True)


def test_every_file_is_used() -> None:
    (kustomization,) = manifests.documents(KUBERNETES / "base" / "kustomization.yaml")
    there = {path.name for path in (KUBERNETES / "base").iterdir()} - {"kustomization.yaml"}
    assert there == set(kustomization["resources"])


@each_workload
def test_its_selector_is_its_pods_label_and_no_others(one: Object) -> None:
    if one["kind"] == "Deployment":
        assert one["spec"]["selector"]["matchLabels"].items() <= manifests.labels_of(one).items()
    same = [other for other in manifests.of_kind(*WORKLOADS) if manifests.labels_of(other) == manifests.labels_of(one)]
    assert same == [one]


def selected(selector: Object) -> list[str]:
    """Names of the workloads whose pods a selector matches."""
    return [one["metadata"]["name"] for one in manifests.of_kind(*WORKLOADS) if matches(selector, one)]


def matches(selector: Object, workload: Object) -> bool:
    labels = manifests.labels_of(workload)
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        one["operator"] == "In" and labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", [])
    )


@pytest.mark.parametrize("one", manifests.of_kind("PodDisruptionBudget"), ids=title)
def test_a_disruption_budget_covers_what_it_is_named_after_and_lets_drains_go_on(one: Object) -> None:
    assert selected(one["spec"]["selector"]) == [one["metadata"]["name"]]
    assert one["spec"]["maxUnavailable"] >= 1


def test_what_serves_people_has_a_disruption_budget_and_is_spread_over_zones() -> None:
    budgets = {one["metadata"]["name"] for one in manifests.of_kind("PodDisruptionBudget")}
    assert budgets == {"bursar-web", "bursar-worker"}
    for name in budgets:
        spec = manifests.pod_of(manifests.named("Deployment", name))["spec"]
        spread = {one["topologyKey"]: one for one in spec["topologySpreadConstraints"]}
        assert {"topology.kubernetes.io/zone", "kubernetes.io/hostname"} == set(spread)
        assert all(selected(one["labelSelector"]) == [name] for one in spread.values())


@pytest.mark.parametrize("one", manifests.of_kind("HorizontalPodAutoscaler"), ids=title)
def test_an_autoscaler_has_a_deployment_whose_number_nobody_else_says(one: Object) -> None:
    target = one["spec"]["scaleTargetRef"]
    deployment = manifests.named(target["kind"], target["name"])
    (kustomization,) = manifests.documents(KUBERNETES / "worker-autoscaling" / "kustomization.yaml")
    taken_away = [patch["target"]["name"] for patch in kustomization["patches"] if "/spec/replicas" in patch["patch"]]
    assert "replicas" not in deployment["spec"] or target["name"] in taken_away
    assert one["spec"]["minReplicas"] >= 2
    assert one["spec"]["maxReplicas"] > one["spec"]["minReplicas"]


def test_the_workers_metric_is_of_the_deployment_that_they_serve_and_documented() -> None:
    (metric,) = manifests.named("HorizontalPodAutoscaler", "bursar-worker")["spec"]["metrics"]
    external = metric["external"]
    settings = manifests.named("ConfigMap", "bursar-worker")["data"]
    assert external["metric"]["selector"]["matchLabels"] == {"deployment": settings["BURSAR_DEPLOYMENT"]}
    assert int(external["target"]["averageValue"]) < int(settings["BURSAR_ENGINE_MAX_RUNNING"])
    assert f"`{external['metric']['name']}" in (ROOT / "docs" / "operations.md").read_text()


def test_there_is_one_scheduler_and_never_two() -> None:
    spec = manifests.named("Deployment", "bursar-scheduler")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert "-B" in manifests.container("bursar-scheduler/scheduler").spec["args"]


@each_container
def test_it_may_do_no_more_than_it_must(one: Container) -> None:
    pod = manifests.pod_of(workload_of(one))["spec"]["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert one.spec["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@each_container
def test_its_resources_are_bounded_and_it_has_a_place_to_write(one: Container) -> None:
    resources = one.spec["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]
    volumes = {volume["name"] for volume in manifests.pod_of(workload_of(one))["spec"]["volumes"]}
    mounts = one.spec["volumeMounts"]
    assert {mount["name"] for mount in mounts} <= volumes
    assert "/tmp" in [mount["mountPath"] for mount in mounts]


@each_container
def test_the_ports_that_its_probes_ask_are_its_own(one: Container) -> None:
    ports = {port["name"] for port in one.spec.get("ports", [])}
    assert {probe["httpGet"]["port"] for probe in one.probes if "httpGet" in probe} <= ports


@each_workload
def test_its_account_is_there_and_has_no_token(one: Object) -> None:
    spec = manifests.pod_of(one)["spec"]
    account = manifests.named("ServiceAccount", spec["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False
    assert spec["automountServiceAccountToken"] is False


def test_the_service_reaches_the_web_processes_port() -> None:
    (service,) = manifests.of_kind("Service")
    assert selected({"matchLabels": service["spec"]["selector"]}) == ["bursar-web"]
    ports = {port["name"] for port in manifests.container("bursar-web/web").spec["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def policies_of(workload: str) -> list[Object]:
    policies = [one["spec"] for one in manifests.of_kind("NetworkPolicy")]
    return [one for one in policies if workload in selected(one["podSelector"])]


def egress_of(workload: str) -> list[tuple[frozenset[int], tuple[str, ...]]]:
    """The ports, and the labels of the pods, that a workload may reach."""
    rules = [rule for one in policies_of(workload) for rule in one.get("egress", [])]
    return [(frozenset(port["port"] for port in rule["ports"]), _whom(rule)) for rule in rules]


def _whom(rule: Object) -> tuple[str, ...]:
    return tuple(
        value
        for peer in rule.get("to", [])
        for value in (peer.get("podSelector") or peer["namespaceSelector"])["matchLabels"].values()
    )


NAMES, BROKER = (frozenset({53}), ("kube-system",)), (frozenset({6379}), ("broker",))
DATABASE, MAIL = (frozenset({5432}), ("database",)), (frozenset({587, 465}), ())


@pytest.mark.parametrize(
    ("workload", "reached"),
    [
        ("bursar-worker", {NAMES, BROKER}),
        ("bursar-web", {NAMES, BROKER, DATABASE}),
        ("bursar-migrate", {NAMES, BROKER, DATABASE}),
        ("bursar-scheduler", {NAMES, BROKER, DATABASE, MAIL}),
    ],
)
def test_a_workload_reaches_what_it_needs_and_nothing_else(workload: str, reached: set[Any]) -> None:
    closed = [one for one in policies_of(workload) if one["podSelector"] == {} and "egress" not in one]
    assert [sorted(one["policyTypes"]) for one in closed] == [["Egress", "Ingress"]]
    assert set(egress_of(workload)) == reached


def test_only_the_ingress_reaches_anything_and_only_the_web_processes() -> None:
    names = [one["metadata"]["name"] for one in manifests.of_kind(*WORKLOADS)]
    entered = {name: [rule for one in policies_of(name) for rule in one.get("ingress", [])] for name in names}
    assert {name for name, rules in entered.items() if rules} == {"bursar-web"}
    (rule,) = entered["bursar-web"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]


def test_nothing_listens_for_others_in_a_workers_pod() -> None:
    pod = manifests.pod_of(manifests.named("Deployment", "bursar-worker"))["spec"]
    assert [one["name"] for one in pod["containers"] if "ports" in one] == []
    assert not pod.get("hostNetwork")
    engine = manifests.container("bursar-worker/engine")
    assert [probe for probe in engine.probes if "exec" not in probe] == []


def test_engine_and_worker_share_a_volume_each_in_a_folder_of_its_own() -> None:
    folders = {}
    for name in ("worker", "engine"):
        mounts = manifests.container(f"bursar-worker/{name}").spec["volumeMounts"]
        folders[name] = next(mount["subPath"] for mount in mounts if mount["name"] == "scratch")
    assert folders == {"worker": "worker", "engine": "engine"}


def test_no_secret_is_written_anywhere() -> None:
    assert manifests.of_kind("Secret") == []


def workload_of(one: Container) -> Object:
    (found,) = [other for other in manifests.of_kind(*WORKLOADS) if other["metadata"]["name"] == one.workload]
    return found


needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl, which builds overlays, is not here")


def build(path: Path) -> list[Object]:
    done = subprocess.run(["kubectl", "kustomize", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@needs_kubectl
def test_kustomize_builds_the_base_of_the_same_objects_in_one_namespace() -> None:
    built = build(KUBERNETES / "base")
    assert {title(one) for one in built} == {title(one) for one in manifests.base()}
    assert {one["metadata"].get("namespace") for one in built if one["kind"] != "Namespace"} == {"bursar"}
    for one in built:
        kubernetes_validate.validate(one, OLDEST, strict=True)


@needs_kubectl
def test_the_example_changes_the_host_everywhere_and_names_its_stores() -> None:
    built = build(KUBERNETES / "example")
    text = yaml.safe_dump_all(built)
    assert "bursar.example" not in text
    assert "bursar/role" not in text
    web = next(one for one in built if title(one) == "Deployment-bursar-web")
    (container,) = web["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/bursar:0.1.0"


@needs_kubectl
def test_the_component_takes_the_number_of_workers_from_the_base(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    overlay = copy / "scaled"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("resources: [../base]\ncomponents: [../worker-autoscaling]\n")
    built = {title(one): one for one in build(overlay)}
    assert "replicas" not in built["Deployment-bursar-worker"]["spec"]
    assert "HorizontalPodAutoscaler-bursar-worker" in built
