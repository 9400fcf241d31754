"""A model that is missing, cut off or another one is refused by name, and no engine is started on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_workers.model_directory import ModelBroken, check_whole, checksum_of, verify
from tests.stack import ROOT

# What docs/operator.md has people type.
BY_HAND = r"find -L . -type f -not -path '*/.*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
INDEX = "model.safetensors.index.json"


def safetensors(size: int = 100) -> bytes:
    """A file of the format with one tensor of so many bytes."""
    tensor = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": tensor})
    return len(header).to_bytes(8, "little") + header.encode() + b"w" * size


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two shards and their index."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for number, shard in enumerate(shards):
        (directory / shard).write_bytes(safetensors(100 + number))
    (directory / INDEX).write_text(json.dumps({"weight_map": {"a": shards[0], "b": shards[1]}}))
    check_whole(directory)
    return directory


def cut(name: str, by: int) -> Callable[[Path], None]:
    return lambda model: os.truncate(model / name, (model / name).stat().st_size - by)


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda model: [(model / name).write_bytes(content)].clear()


SECOND = "model-00002-of-00002.safetensors"
FAULTS: list[tuple[Callable[[Path], None], str]] = [
    (lambda model: model.rename(model.with_name("elsewhere")) and None, "there is no such directory"),
    (lambda model: (model / "config.json").unlink(), "config.json is missing"),
    (lambda model: (model / SECOND).unlink(), f"{SECOND} is missing, and {INDEX} names it"),
    (lambda model: [file.unlink() for file in model.glob("model*")].clear(), "there are no weights in it"),
    (cut(SECOND, 1), f"{SECOND} is cut off: "),
    (cut(SECOND, 150), f"{SECOND} is cut off: its header is not whole"),
    (write(SECOND, b""), f"{SECOND} is cut off: its header is not whole"),
    (write(SECOND, b"\xff" * 400), f"{SECOND} is cut off: its header is not whole"),
    (write(SECOND, (4).to_bytes(8, "little") + b"nope"), f"{SECOND} has no header that can be read"),
    (write(SECOND, (2).to_bytes(8, "little") + b"[]"), f"{SECOND} has no header that can be read"),
    (write(SECOND, (8).to_bytes(8, "little") + b'{"w": 1}'), f"{SECOND} has no header that can be read"),
    (write(SECOND, safetensors() + b"more"), f"{SECOND} is too long: "),
    (write(INDEX, b"{"), f"{INDEX} cannot be read"),
    (write(INDEX, b'{"weight_map": {"a": "../x.safetensors"}}'), "names a file that is not beside it"),
]


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_what_is_wrong_is_said_by_file(model: Path, fault: Callable[[Path], None], said: str) -> None:
    fault(model)
    with pytest.raises(ModelBroken) as caught:
        check_whole(model)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=60)
@given(data=st.data())
def test_a_safetensors_file_that_is_cut_anywhere_is_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory, whole = tmp_path_factory.mktemp("cut"), safetensors()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ModelBroken, match=r"model\.safetensors"):
        check_whole(directory)


def test_the_checksum_is_what_coreutils_make_of_the_directory(model: Path) -> None:
    (model / "tokenizer").mkdir()
    (model / "tokenizer" / "Über.json").write_text("é")
    (model / ".cache").mkdir()
    (model / ".cache" / "note").write_text("of a download")
    by_hand = subprocess.run(["bash", "-c", BY_HAND], cwd=model, capture_output=True, text=True, check=True).stdout
    assert BY_HAND in (ROOT / "docs" / "operator.md").read_text()
    assert f"{checksum_of(model)}  -\n" == by_hand
    command = [sys.executable, "-m", "gpu_workers.model_directory", str(model)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == f"{checksum_of(model)}\n"


def test_a_changed_renamed_or_added_file_is_another_checksum(model: Path) -> None:
    seen = {checksum_of(model)}
    (model / "config.json").write_text('{"a": 1}')
    seen.add(checksum_of(model))
    (model / "config.json").rename(model / "config2.json")
    seen.add(checksum_of(model))
    (model / "more.txt").write_text("")
    seen.add(checksum_of(model))
    assert len(seen) == 4


def test_a_model_that_is_another_one_is_refused_with_both_checksums(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "digests"
    right = checksum_of(model)
    assert verify(model, right, cache) == right
    assert verify(model, "", cache) == ""
    (model / "config.json").write_text('{"another": true}')
    with pytest.raises(ModelBroken, match=f"BURSAR_MODEL_CHECKSUM: .*{checksum_of(model)[:12]}.*{right[:12]}"):
        verify(model, right, cache)


def test_a_file_that_has_not_changed_is_not_read_again(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "digests"
    before = checksum_of(model, cache)
    shard = model / SECOND
    times, content = shard.stat(), shard.read_bytes()
    with shard.open("r+b") as file:  # in place, with its time put back: what the cache cannot see
        file.write(content[:-1] + b"x")
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert checksum_of(model, cache) == before
    assert checksum_of(model) != before
    os.utime(shard)
    assert checksum_of(model, cache) == checksum_of(model)
    cache.write_bytes(b"{not json")
    assert checksum_of(model, cache) == checksum_of(model)


def test_a_name_that_tools_write_in_another_way_is_refused(model: Path) -> None:
    (model / "two\nlines").write_text("")
    with pytest.raises(ModelBroken, match="name has a character"):
        checksum_of(model)


@pytest.mark.parametrize(
    ("fault", "checksum", "said"),
    [
        (cut(SECOND, 1), "", f"engine: BURSAR_MODEL_PATH: {SECOND} is cut off: "),
        (lambda _: None, "0" * 64, "engine: BURSAR_MODEL_CHECKSUM: the model's is "),
        (lambda _: None, "0" * 63, "engine: BURSAR_MODEL_CHECKSUM must be 64 hexadecimal digits."),
    ],
)
def test_the_supervisor_starts_no_engine_and_says_why_in_one_line(
    model: Path, tmp_path: Path, fault: Callable[[Path], None], checksum: str, said: str
) -> None:
    fault(model)
    started = tmp_path / "started"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {started}\n")
    python.chmod(0o700)
    environment = os.environ | {
        "BURSAR_VALKEY_URL": "unix:///none",
        "BURSAR_SEAL_KEY": "0" * 64,
        "BURSAR_DEPLOYMENT": "d",
        "BURSAR_ENGINE": "vllm",
        "BURSAR_ENGINE_URL": "http://127.0.0.1:9/v1",
        "BURSAR_ENGINE_MODEL": "m",
        "BURSAR_ENGINE_PYTHON": str(python),
        "BURSAR_MODEL_PATH": str(model),
        "BURSAR_MODEL_CHECKSUM": checksum,
        "BURSAR_RUN_DIRECTORY": str(tmp_path / "run"),
    }
    command = [sys.executable, "-m", "gpu_workers.supervisor"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert not started.exists()
