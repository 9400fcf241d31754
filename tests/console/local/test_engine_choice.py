"""ENGINE and ENGINE_URL decide what answers; an attached server is asked for its model."""

import http.server
import json
import threading
from pathlib import Path

import pytest

from console.local import ports
from console.local.engine_choice import Wish, engine_settings, read_wish
from console.local.errors import CannotRunError


class ModelServer(http.server.BaseHTTPRequestHandler):
    """Answers GET /v1/models with what the test put here."""

    status, body, seen = 200, b"", ""

    def do_GET(self) -> None:
        type(self).seen = self.headers.get("Authorization", "")
        self.send_response(self.status if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *arguments: object) -> None:
        """Silence."""


@pytest.fixture
def server_url():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ModelServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ModelServer.status, ModelServer.body = 200, json.dumps({"data": [{"id": "org/some-model"}]}).encode()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def settings(wish: Wish) -> dict[str, str]:
    return engine_settings(wish, 4321, "key", Path("/e/bin/python"), Path("/m/smollm2-135m-instruct"))


def test_vllm_with_the_small_model_is_the_default():
    found = settings(read_wish({}))
    assert found["BURSAR_ENGINE"] == "vllm"
    assert found["BURSAR_ENGINE_URL"] == "http://127.0.0.1:4321/v1"
    assert found["BURSAR_MODEL_NAME"] == "smollm2-135m-instruct"
    assert found["BURSAR_MODEL_PATH"] == "/m/smollm2-135m-instruct"


def test_the_simulated_engine_needs_no_vllm():
    wish = read_wish({"ENGINE": "simulated"})
    assert not wish.needs_vllm
    assert settings(wish)["BURSAR_DEPLOYMENT"] == "simulated-local"
    assert "BURSAR_ENGINE_PYTHON" not in settings(wish)


def test_an_attached_server_names_its_model(server_url):
    found = settings(read_wish({"ENGINE_URL": server_url + "/", "ENGINE_API_KEY": "s3cret"}))
    assert found["BURSAR_ENGINE"] == "openai"
    assert found["BURSAR_ENGINE_URL"] == server_url
    assert found["BURSAR_ENGINE_MODEL"] == "org/some-model"
    assert found["BURSAR_MODEL_NAME"] == "some-model"
    assert ModelServer.seen == "Bearer s3cret"


def test_a_named_model_is_taken_without_asking():
    wish = read_wish({"ENGINE_URL": "http://127.0.0.1:1/v1", "ENGINE_MODEL": "mine"})
    assert settings(wish)["BURSAR_ENGINE_MODEL"] == "mine"


def test_nobody_at_the_address_is_one_line():
    with pytest.raises(CannotRunError, match="no server answers at"):
        settings(read_wish({"ENGINE_URL": f"http://127.0.0.1:{ports.free_port()}/v1"}))


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"{}", "status 401 .set ENGINE_API_KEY"),
        (500, b"{}", "status 500"),
        (200, b"<html>", "does not answer with a list of models"),
        (200, b"\xff\xfe", "does not answer with a list of models"),
        (200, b'{"data": []}', "names no model"),
        (200, b"[]", "names no model"),
    ],
)
def test_a_server_that_is_no_such_server_is_one_line(server_url, status, body, said):
    ModelServer.status, ModelServer.body = status, body
    with pytest.raises(CannotRunError, match=said) as failure:
        settings(read_wish({"ENGINE_URL": server_url}))
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    "wish", [{"ENGINE": "gpt"}, {"ENGINE_URL": "localhost:8000"}, {"ENGINE_URL": "file:///etc/passwd"}]
)
def test_a_wish_that_means_nothing_is_refused(wish):
    with pytest.raises(CannotRunError):
        read_wish(wish)
