"""Profiles of engines: what is drawn from one is what was measured, and what is none is refused by its field."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.engines.latency import (
    LEVELS,
    MAX_BYTES,
    Measured,
    Profile,
    ProfileInvalid,
    parse_profile,
    read_profile,
    value_at,
    write_profile,
)
from tests.stack import ROOT

RECORDED = ROOT / "gpu_workers" / "engines" / "profiles" / "smollm2-135m-vllm-cpu.json"
# What a summary of drawn samples may differ in from the profile that they are drawn from.
TOLERANCE = 0.05
DRAWN = 20_000
VALID: dict[str, Any] = {
    "version": 1,
    "engine": "vLLM",
    "model": "m",
    "host": "",
    "measured_on": "2026-12-01",
    "ttft": [
        {"at": 10, "samples": 3, "ms": [10.0] * len(LEVELS)},
        {"at": 110, "samples": 3, "ms": [30.0] * len(LEVELS)},
    ],
    "itl": [{"at": 1, "samples": 3, "ms": [float(n) for n in range(len(LEVELS))]}],
}


def changed(path: str, value: Any) -> bytes:
    whole = copy.deepcopy(VALID)
    *parents, last = path.split(".")
    place: Any = whole
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    place[int(last) if last.isdigit() else last] = value
    return json.dumps(whole).encode()


def drawn_ttft(profile: Profile, prompt_tokens: int) -> list[float]:
    return [profile.for_request(number, None, prompt_tokens)[1] * 1000 for number in range(DRAWN)]


def drawn_gaps(profile: Profile, running: int) -> list[float]:
    rng, _ = profile.for_request(0, 7, 1)
    return [profile.gap_s(rng, running) * 1000 for _ in range(DRAWN)]


def same(left: Measured, right: Measured) -> None:
    """At every kept share but the outermost, which single samples decide, and in tokens a second."""
    for share in LEVELS[2:-2]:
        assert left.value(share) == pytest.approx(right.value(share), rel=TOLERANCE), share
    assert 1 / left.mean == pytest.approx(1 / right.mean, rel=TOLERANCE)


def test_what_is_drawn_from_the_recorded_profile_is_what_was_measured() -> None:
    profile = read_profile(RECORDED)
    for point in profile.ttft:
        same(Measured.of(point.at, drawn_ttft(profile, point.at)), point)
    for point in profile.itl:
        same(Measured.of(point.at, drawn_gaps(profile, point.at)), point)


def test_a_summary_of_samples_is_worked_by_hand() -> None:
    measured = Measured.of(1, [float(number) for number in range(101, 0, -1)])
    assert measured.samples == 101
    assert measured.ms == tuple(round(1 + 100 * level, 3) for level in LEVELS)
    assert measured.mean == pytest.approx(51)
    assert measured.value(0.25) == pytest.approx(26)
    assert Measured.of(1, [5.0]).ms == (5.0,) * len(LEVELS)


def test_between_two_points_values_are_interpolated_and_beyond_them_are_theirs() -> None:
    points = parse_profile(json.dumps(VALID).encode()).ttft
    assert [value_at(points, at, 0.5) for at in (1, 10, 60, 110, 9999)] == [10, 10, 20, 30, 30]


def test_the_same_seed_draws_the_same() -> None:
    profile = read_profile(RECORDED)
    assert profile.for_request(1, 5, 50)[1] == profile.for_request(2, 5, 50)[1]
    assert profile.for_request(1, None, 50)[1] != profile.for_request(2, None, 50)[1]


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile = read_profile(RECORDED)
    (tmp_path / "p.json").write_bytes(write_profile(profile))
    assert read_profile(tmp_path / "p.json") == profile


@given(st.lists(st.floats(0, 600_000), min_size=1, max_size=200), st.floats(0, 1))
def test_a_value_lies_within_the_samples_and_does_not_fall(samples: list[float], share: float) -> None:
    measured = Measured.of(1, samples)
    assert min(samples) - 0.001 <= measured.value(share) <= max(samples) + 0.001
    assert list(measured.ms) == sorted(measured.ms)
    assert parse_profile(changed("itl.0", msgspec.to_builtins(measured))).itl == (measured,)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", 2, r"\$.version"),
        ("ttft", [], r"\$.ttft"),
        ("itl.0.ms", [1.0], r"\$.itl\[0\].ms"),
        ("itl.0.ms.0", -1.0, r"\$.itl\[0\].ms"),
        ("itl.0.ms.0", 1e9, r"\$.itl\[0\].ms"),
        ("itl.0.ms.0", "fast", r"\$.itl\[0\].ms"),
        ("itl.0.ms.0", 99.0, "itl: the values of a point must not fall"),
        ("itl.0.at", 0, r"\$.itl\[0\].at"),
        ("ttft.1.at", 10, "ttft: its points must be in ascending order"),
        ("itl.0.more", 1, "more"),
        ("engine", "e" * 201, r"\$.engine"),
    ],
)
def test_what_is_no_profile_is_refused_by_its_field(path: str, value: Any, said: str) -> None:
    with pytest.raises(ProfileInvalid, match=said):
        parse_profile(changed(path, value))


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b'{"ttft": NaN}'])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ProfileInvalid, match="no engine profile"):
        parse_profile(raw)


def test_a_file_that_is_not_there_or_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileInvalid, match="cannot be read: No such file"):
        read_profile(tmp_path / "none.json")
    (tmp_path / "long.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(ProfileInvalid, match="longer than"):
        read_profile(tmp_path / "long.json")


def test_the_simulated_engine_refuses_a_profile_that_is_none_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpu_workers.engines.simulated", "--port", "1"]
    done = subprocess.run(
        [*command, "--profile", str(tmp_path / "none.json")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "engine: --profile: It cannot be read: No such file or directory.\n")
