"""A local run put together: its servers, its settings and its demonstration accounts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from console.local import credentials, engine_environment, model
from console.local.engine_choice import engine_settings, read_wish
from console.local.places import ROOT, Places, places_for
from console.local.ports import choose_port, free_port, wanted_host, wanted_port
from console.local.postgres import Postgres
from console.local.valkey import Valkey

DEMO_USERS = {"BURSAR_ADMIN_USER": "admin", "BURSAR_OFFICER_USER": "officer", "BURSAR_USER": "demo"}
DEMO_SECRETS = ("BURSAR_ADMIN_PASSWORD", "BURSAR_OFFICER_PASSWORD", "BURSAR_USER_PASSWORD", "BURSAR_API_KEY")


@dataclass(frozen=True)
class Composition:
    """Everything that a run needs to know before it starts anything."""

    places: Places
    postgres: Postgres
    valkey: Valkey
    settings: Mapping[str, str]
    demo: Mapping[str, str]

    @property
    def url(self) -> str:
        return self.settings["BURSAR_URL"]

    @property
    def runs_engine(self) -> bool:
        return self.settings["BURSAR_ENGINE"] != "openai"


def compose(var: Path, environment: Mapping[str, str]) -> Composition:
    """What `environment` asks for, on the secrets in `var`. Raises CannotRunError; starts nothing."""
    wish = read_wish(environment)
    host = wanted_host(environment)
    port = choose_port(host, wanted_port(environment))
    places = places_for(var)
    secrets = credentials.load_or_generate(var / "secrets.env", places.data / "postgres")
    engine = engine_settings(
        wish, free_port(), secrets["BURSAR_ENGINE_API_KEY"], engine_environment.PYTHON, model.directory(var)
    )
    superuser, owner = secrets["BURSAR_DATABASE_SUPERUSER_PASSWORD"], secrets["BURSAR_DATABASE_PASSWORD"]
    postgres, valkey = Postgres(places, superuser, owner), Valkey(places, secrets["BURSAR_VALKEY_PASSWORD"])
    keys = {name: secrets[name] for name in ("BURSAR_SECRET_KEY", "BURSAR_RECORD_KEY", "BURSAR_SEAL_KEY")}
    stores = {"BURSAR_DATABASE_URL": postgres.url(), "BURSAR_VALKEY_URL": valkey.url()}
    settings = {**_web_settings(host, port, environment, places.control), **stores, **keys, **engine}
    return Composition(places, postgres, valkey, settings, DEMO_USERS | {name: secrets[name] for name in DEMO_SECRETS})


def _web_settings(host: str, port: int, environment: Mapping[str, str], run_directory: Path) -> dict[str, str]:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - only compared with
    defaults = {
        "BURSAR_URL": f"http://{f'[{shown}]' if ':' in shown else shown}:{port}",
        "BURSAR_ALLOWED_HOSTS": f"127.0.0.1,localhost,[::1],{shown}",
        "BURSAR_ORIGINS": f"http://127.0.0.1:{port},http://localhost:{port}",
        "BURSAR_DEBUG": "0",
        "BURSAR_LOG_FORMAT": "json",
    }
    chosen = {name: environment.get(name) or value for name, value in defaults.items()}
    return {
        "BURSAR_HOST": host,
        "BURSAR_PORT": str(port),
        "BURSAR_RUN_DIRECTORY": str(run_directory),
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PATH": f"{ROOT / '.venv' / 'bin'}:{environment.get('PATH', '')}",
        **chosen,
    }
