"""A process that ends is spoken of once, and one that keeps ending once more."""

import pytest

from console.local.supervision import State
from console.local.watch import Watch


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "web.log").write_text("one\ntwo\nTraceback\n")
    return tmp_path


def look(watch: Watch, *starts: int) -> None:
    for start in starts:
        watch.look([State("web", "RUNNING", start)])


def test_a_process_that_runs_is_not_spoken_of(logs, capsys):
    look(Watch(logs), 0, 10, 10, 10)
    assert capsys.readouterr().err == ""


def test_one_end_is_one_line_with_the_place_in_the_log(logs, capsys):
    watch = Watch(logs)
    look(watch, 10, 20, 20)
    (line,) = capsys.readouterr().err.splitlines()
    assert "web ended and was started again" in line
    assert line.endswith("web.log:3")
    assert not watch.failing()


def test_many_ends_are_two_lines_in_all(logs, capsys):
    watch = Watch(logs)
    look(watch, *range(10, 30))
    _, second = capsys.readouterr().err.splitlines()
    assert "keeps ending" in second
    assert watch.failing() == "web"


def test_ends_long_ago_are_forgotten(logs):
    now = [0.0]
    watch = Watch(logs, lambda: now[0])
    look(watch, *range(10, 20))
    now[0] = 1000
    assert not watch.failing()
