"""The files of deploy/ as tests read them: Kubernetes objects, their pods and containers, and what those refer to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.stack import ROOT

Object = dict[str, Any]

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
NAME = "app.kubernetes.io/name"
WORKLOADS = ("Deployment", "Job")
VARIABLE = re.compile(r"BURSAR_[A-Z][A-Z_]*\Z")


def documents(path: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def base() -> list[Object]:
    """Every object that the base's kustomization names."""
    (kustomization,) = documents(KUBERNETES / "base" / "kustomization.yaml")
    return [one for name in kustomization["resources"] for one in documents(KUBERNETES / "base" / name)]


def every_object() -> list[Object]:
    """The base's, and those of the component that scales workers."""
    return [*base(), *documents(KUBERNETES / "worker-autoscaling" / "worker.yaml")]


def named(kind: str, name: str) -> Object:
    (found,) = [one for one in every_object() if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def of_kind(*kinds: str) -> list[Object]:
    return [one for one in every_object() if one["kind"] in kinds]


def pod_of(workload: Object) -> Object:
    pod: Object = workload["spec"]["template"]
    return pod


def labels_of(workload: Object) -> dict[str, str]:
    labels: dict[str, str] = pod_of(workload)["metadata"]["labels"]
    return labels


@dataclass(frozen=True)
class Container:
    """A container with the workload that it is of."""

    workload: str
    spec: Object

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.spec['name']}"

    @property
    def probes(self) -> list[Object]:
        return [self.spec[name] for name in ("startupProbe", "livenessProbe", "readinessProbe") if name in self.spec]

    def secrets(self) -> set[tuple[str, str]]:
        """The name and key of every secret that it reads."""
        references = [one.get("valueFrom", {}).get("secretKeyRef") for one in self.spec.get("env", [])]
        return {(one["name"], one["key"]) for one in references if one}

    def environment(self, secrets: dict[tuple[str, str], str]) -> dict[str, str]:
        """Its variables, with these values for secrets. One that is optional and not given is left out."""
        variables: dict[str, str] = {}
        for source in self.spec.get("envFrom", []):
            variables |= named("ConfigMap", source["configMapRef"]["name"])["data"]
        for one in self.spec.get("env", []):
            value = _value(one, secrets)
            if value is not None:
                variables[one["name"]] = value
        return variables

    def command(self, variables: dict[str, str]) -> list[str]:
        words = [*self.spec.get("command", []), *self.spec.get("args", [])]
        return [re.sub(r"\$\(([A-Z_]+)\)", lambda found: variables[found[1]], word) for word in words]


def _value(variable: Object, secrets: dict[tuple[str, str], str]) -> str | None:
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "configMapKeyRef" in source:
        reference = source["configMapKeyRef"]
        return str(named("ConfigMap", reference["name"])["data"][reference["key"]])
    reference = source["secretKeyRef"]
    if reference.get("optional"):
        return secrets.get((reference["name"], reference["key"]))
    return secrets[reference["name"], reference["key"]]


def containers() -> list[Container]:
    return list(_containers())


def container(name: str) -> Container:
    (found,) = [one for one in containers() if one.name == name]
    return found


def _containers() -> Iterator[Container]:
    for workload in of_kind(*WORKLOADS):
        spec = pod_of(workload)["spec"]
        for one in [*spec.get("initContainers", []), *spec["containers"]]:
            yield Container(workload["metadata"]["name"], one)


def compose() -> Object:
    (document,) = documents(DEPLOY / "compose" / "compose.yaml")
    return document
