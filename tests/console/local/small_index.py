"""A package index of our own for tests: one small wheel in a directory, and no network."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

WHEEL = "tinypackage-1.0-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: tinypackage\nVersion: 1.0\n"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(directory: Path, extra: str = "") -> str:
    """A package with one module, and an empty file `extra`; returns its line for a pinned list.

    The same arguments give the same bytes, whatever the time: an archive's entries are dated to two seconds.
    """
    directory.mkdir(exist_ok=True)
    files = {"tinypackage.py": "ANSWER = 42\n" + "# padding\n" * 1000}
    if extra:
        files[extra] = ""
    described = "tinypackage-1.0.dist-info"
    files |= {f"{described}/METADATA": METADATA, f"{described}/WHEEL": TAGS, f"{described}/RECORD": ""}
    with zipfile.ZipFile(directory / WHEEL, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    digest = hashlib.sha256((directory / WHEEL).read_bytes()).hexdigest()
    return f"tinypackage==1.0 --hash=sha256:{digest}\n"


def use_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip see the wheels of `directory` and nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
