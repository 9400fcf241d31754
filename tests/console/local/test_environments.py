"""Environments are built from hashed lists with the real pip, against a small index of our own."""

import http.server
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from console.local import environments, pip
from console.local.environments import PackageSet
from console.local.errors import CannotRunError
from console.local.installation import explain
from console.local.workspace import workspace_in
from tests.console.local.small_index import WHEEL, make_wheel, use_only


@pytest.fixture
def index(tmp_path, monkeypatch):
    use_only(tmp_path / "wheels", monkeypatch)
    return tmp_path / "wheels"


@pytest.fixture
def package_set(tmp_path, index):
    pinned = tmp_path / "pinned.txt"
    pinned.write_text(make_wheel(index))
    return PackageSet("Installing", "platform", str(pinned), "a moment", 0.01, directory=tmp_path / "venv")


@pytest.fixture
def quick_venv(monkeypatch):
    """An environment of ours under test borrows pip from the one that runs the tests: that is quick."""
    create = environments.create

    def create_quickly(directory, progress, workspace):
        for stamp in directory.glob("*.complete"):
            stamp.unlink()
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", directory], check=True)
        (packages,) = directory.glob("lib/python3*/site-packages")
        (packages / "borrowed.pth").write_text(str(Path(pip_module()).parents[1]))

    monkeypatch.setattr(environments, "create", create_quickly)
    return create


def pip_module() -> str:
    import pip as installed

    return str(installed.__file__)


def install(package_set, tmp_path):
    with workspace_in(tmp_path / "var") as workspace:
        package_set.ensure(workspace)


def test_it_installs_and_then_leaves_it_alone(package_set, tmp_path, capsys):
    install(package_set, tmp_path)
    assert package_set.is_complete()
    assert (
        subprocess.check_output([package_set.python, "-c", "import tinypackage; print(tinypackage.ANSWER)"]) == b"42\n"
    )
    capsys.readouterr()
    install(package_set, tmp_path)
    assert capsys.readouterr().out == ""


def test_a_changed_list_makes_the_stamp_stale(package_set, tmp_path, quick_venv):
    install(package_set, tmp_path)
    Path(package_set.pinned).write_text(Path(package_set.pinned).read_text() + "# changed\n")
    assert not package_set.is_complete()
    (package_set.directory / "stale").touch()
    install(package_set, tmp_path)
    assert package_set.is_complete()


def test_the_source_roots_are_on_the_path(package_set, tmp_path, quick_venv):
    install(package_set, tmp_path)
    found = subprocess.check_output([package_set.python, "-c", "import console, inference; print('ok')"], cwd="/")
    assert found == b"ok\n"


def test_an_altered_package_is_refused_and_leaves_no_stamp(package_set, tmp_path, index, quick_venv):
    with zipfile.ZipFile(index / WHEEL, "a") as archive:
        archive.writestr("tinypackage_extra.py", "")
    with pytest.raises(CannotRunError, match="not the one that was pinned"):
        install(package_set, tmp_path)
    assert not package_set.is_complete()


def test_a_package_that_no_index_offers_is_named(package_set, tmp_path, index, quick_venv):
    (index / WHEEL).unlink()
    with pytest.raises(pip.PackageUnavailableError, match=r"does not offer tinypackage==1\.0"):
        install(package_set, tmp_path)


def test_an_index_out_of_reach_is_a_network_matter(package_set, tmp_path, monkeypatch, quick_venv):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(CannotRunError, match="cannot be reached: check the network") as failure:
        install(package_set, tmp_path)
    assert not isinstance(failure.value, pip.PackageUnavailableError)


class BrokenIndex(http.server.BaseHTTPRequestHandler):
    """Lists the wheel, and ends every download of it half-way."""

    wheel = b""

    def do_GET(self) -> None:
        page = self.path.endswith("/tinypackage/")
        body = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode() if page else self.wheel[: len(self.wheel) // 2]
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if page else "application/octet-stream")
        self.send_header("Content-Length", str(len(body) if page else len(self.wheel)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Silence: the test's output is pip's."""


def test_a_download_that_breaks_off_is_said_so(package_set, tmp_path, index, monkeypatch, quick_venv):
    BrokenIndex.wheel = (index / WHEEL).read_bytes()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BrokenIndex) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        with pytest.raises(CannotRunError, match=r"download broke off|not the one that was pinned"):
            install(package_set, tmp_path)
        server.shutdown()
    assert not package_set.is_complete()


def test_a_killed_installation_leaves_no_stamp_and_no_pip(package_set, tmp_path, monkeypatch, quick_venv):
    """The index accepts the connection and stays silent, so that pip hangs where a slow network would."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        environments.create(package_set.directory, None, None)
        code = (
            "import sys; from pathlib import Path; from console.local import environments;"
            "from console.local.environments import PackageSet; from console.local.workspace import workspace_in;"
            "environments.create = lambda *_: None;"
            f"s = PackageSet('Installing', 'platform', {package_set.pinned!r}, '', 0.01,"
            f" directory=Path({str(package_set.directory)!r}))\n"
            f"with workspace_in(Path({str(tmp_path / 'var')!r})) as w: s.ensure(w)"
        )
        installer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
        silent.settimeout(60)
        connection, _ = silent.accept()
        installer.send_signal(signal.SIGKILL)
        installer.wait()
        connection.settimeout(30)
        while connection.recv(4096):
            pass  # ends when pip, its other end, is gone
        connection.close()
    assert not package_set.is_complete()


def test_too_little_space_is_refused_before_anything_is_done(package_set, tmp_path):
    with pytest.raises(CannotRunError, match=r"1000000\.0 GB are needed"):
        install(replace(package_set, needs_gb=1_000_000), tmp_path)
    assert not package_set.directory.exists()


def test_a_disk_that_fills_up_is_one_sentence():
    assert "disk is full" in explain(OSError(28, "No space left on device"))
    output = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    assert "disk is full" in str(pip.explain(output))


def test_a_directory_without_write_permission_is_one_sentence():
    assert "cannot be written to" in explain(PermissionError(13, "Permission denied", "/opt/bursar/var"))
