"""Builds a TensorRT Model Connect bundle of a model: `python -m gpu_workers.model_bundle MODEL BUNDLE`.

A step for whoever prepares a model version: it runs `trtmc build`, keeps what that says beside the bundle, and prints
the bundle's SHA-256. Nothing here serves bundles. The command line is the one published at
https://nvidia.github.io/TensorRT-Model-Connect/api/cli-reference.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path


class BuildFailed(Exception):
    """The message is one line."""


def build_command(builder: str, model: str, bundle: Path) -> list[str]:
    """`model` is an absolute path, or a hub identifier as the catalog has them: `owner/name[@revision]`."""
    is_local = Path(model).is_absolute()
    name, _, revision = (model, "", "") if is_local else model.partition("@")
    if name.startswith("-"):
        raise BuildFailed("A model's name does not begin with a dash.")
    return [builder, "build", name, *(["--model-revision", revision] if revision else []), "-o", str(bundle)]


def build(builder: str, model: str, bundle: Path) -> str:
    """The bundle's SHA-256. What the builder said is in the log beside it. Raises `BuildFailed`."""
    command, log = build_command(builder, model, bundle), bundle.with_name(f"{bundle.name}.log")
    if bundle.exists():
        raise BuildFailed("The bundle is there already.")
    try:
        with log.open("wb") as output:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
    except OSError as error:
        raise BuildFailed(f"The builder cannot be started or its log written: {error.strerror}.") from None
    if done.returncode:
        raise BuildFailed(f"The builder ended with {done.returncode}; what it said is in {log.name}.")
    if not bundle.is_file():
        raise BuildFailed(f"The builder made no bundle; what it said is in {log.name}.")
    with bundle.open("rb") as file:
        return hashlib.file_digest(file, hashlib.sha256).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="model_bundle", description="Build a TensorRT Model Connect bundle.")
    parser.add_argument("model", help="an absolute path, owner/name or owner/name@revision")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--trtmc", default="trtmc", metavar="FILE", help="the builder (default: trtmc on the PATH)")
    options = parser.parse_args()
    try:
        print(build(options.trtmc, options.model, options.bundle))  # noqa: T201
    except BuildFailed as error:
        print(f"bundle: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
