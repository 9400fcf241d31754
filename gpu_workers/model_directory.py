"""A model's directory, before an engine is started on it: whole, and the one that was approved.

`python -m gpu_workers.model_directory PATH` prints its checksum: the SHA-256 of what `sha256sum` prints for its files,
in the order of their paths. Files and folders whose names begin with a dot do not count: downloads keep notes there.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gpu_workers.settings import SettingsError

WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf", ".engine")
# Hugging Face's and Mistral's.
CONFIGURATIONS = ("config.json", "params.json")
INDEX = "model.safetensors.index.json"
# The format's own bound on a header, and one for files that are read whole.
MAX_HEADER = 100_000_000
MAX_JSON = 100_000_000
SHOWN_DIGITS = 12

Size = Annotated[int, Meta(ge=0)]


class ModelBroken(SettingsError):
    """The directory cannot be served; the message names the file, and what is wrong with it."""


class _Tensor(Struct):
    data_offsets: tuple[Size, Size]


class _Index(Struct):
    weight_map: dict[str, str]


class _Known(Struct, frozen=True):
    """A file's digest, and what it looked like then."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str


def check_whole(directory: Path) -> None:
    """Raises `ModelBroken` where a file is missing or cut off."""
    if not directory.is_dir():
        raise ModelBroken("BURSAR_MODEL_PATH: there is no such directory.")
    if not any((directory / name).is_file() for name in CONFIGURATIONS):
        raise ModelBroken("BURSAR_MODEL_PATH: config.json is missing.")
    if (directory / INDEX).exists():
        _check_index(directory)
    weights = [file for file in sorted(directory.iterdir()) if file.suffix in WEIGHTS and file.is_file()]
    if not weights:
        raise ModelBroken("BURSAR_MODEL_PATH: there are no weights in it.")
    for file in weights:
        if file.suffix == ".safetensors":
            _check_safetensors(file)


def _check_index(directory: Path) -> None:
    try:
        shards = set(msgspec.json.decode(_read(directory / INDEX, MAX_JSON), type=_Index).weight_map.values())
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError):
        raise ModelBroken(f"BURSAR_MODEL_PATH: {INDEX} cannot be read.") from None
    for shard in sorted(shards):
        if Path(shard).name != shard:
            raise ModelBroken(f"BURSAR_MODEL_PATH: {INDEX} names a file that is not beside it.")
        if not (directory / shard).is_file():
            raise ModelBroken(f"BURSAR_MODEL_PATH: {shard} is missing, and {INDEX} names it.")


def _check_safetensors(file: Path) -> None:
    """Eight bytes say how long the header is, and the header where the last tensor ends."""
    size = file.stat().st_size
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise ModelBroken(f"BURSAR_MODEL_PATH: {file.name} is cut off: its header is not whole.")
            header = msgspec.json.decode(opened.read(length), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        ends = [msgspec.json.decode(tensor, type=_Tensor).data_offsets[1] for tensor in header.values()]
    except (ValueError, OSError, RecursionError) as error:
        if isinstance(error, ModelBroken):
            raise
        raise ModelBroken(f"BURSAR_MODEL_PATH: {file.name} has no header that can be read.") from None
    whole = 8 + length + max(ends, default=0)
    if size != whole:
        fault = "is cut off" if size < whole else "is too long"
        raise ModelBroken(f"BURSAR_MODEL_PATH: {file.name} {fault}: {size} bytes of {whole}.")


def _read(file: Path, limit: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(limit)


def checksum_of(directory: Path, cache: Path | None = None) -> str:
    """The directory's checksum. Digests in `cache` are taken for files of the same size, time and inode.

    Raises `ModelBroken` where a file cannot be read.
    """
    known, seen = _read_cache(cache), {}
    lines = hashlib.sha256()
    try:
        for name in sorted(_files(directory), key=os.fsencode):
            path = directory / name
            seen[str(path.absolute())] = entry = _digest(path, known.get(str(path.absolute())))
            lines.update(f"{entry.sha256}  ".encode() + os.fsencode(name) + b"\n")
    except OSError as error:
        raise ModelBroken(f"BURSAR_MODEL_PATH: a file of it cannot be read: {error.strerror}.") from None
    if cache is not None:
        _write_cache(cache, known | seen)
    return lines.hexdigest()


def _files(directory: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(directory, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), directory)
            if not name.startswith(".") and os.path.isfile(os.path.join(folder, name)):
                if "\\" in path or not path.isprintable():  # sha256sum writes such names in another way
                    raise ModelBroken("BURSAR_MODEL_PATH: a file's name has a character that names should not have.")
                yield path


def _raise(error: OSError) -> None:
    raise error


def _digest(path: Path, known: _Known | None) -> _Known:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if known and (known.size, known.mtime_ns, known.inode) == (found.st_size, found.st_mtime_ns, found.st_ino):
            return known
        return _Known(
            found.st_size, found.st_mtime_ns, found.st_ino, hashlib.file_digest(file, hashlib.sha256).hexdigest()
        )


def _read_cache(cache: Path | None) -> dict[str, _Known]:
    try:
        return msgspec.json.decode(_read(cache, MAX_JSON), type=dict[str, _Known]) if cache else {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _write_cache(cache: Path, entries: dict[str, _Known]) -> None:
    temporary = cache.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(entries))
    temporary.replace(cache)


def verify(directory: Path, expected: str, cache: Path) -> str:
    """The checksum where one is expected and it is that; empty where none is. Raises `ModelBroken`."""
    check_whole(directory)
    if not expected:
        return ""
    found = checksum_of(directory, cache)
    if found != expected:
        raise ModelBroken(
            f"BURSAR_MODEL_CHECKSUM: the model's is {found[:SHOWN_DIGITS]}…, expected {expected[:SHOWN_DIGITS]}…."
        )
    return found


def main() -> int:
    try:
        directory = Path(sys.argv[1] if len(sys.argv) == 2 else "")
        check_whole(directory)
        print(checksum_of(directory))  # noqa: T201
    except ModelBroken as error:
        print(f"model: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
