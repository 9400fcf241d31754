"""Which engine answers: vLLM with the small model, the simulated one, or a server that runs elsewhere."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from console.local.errors import CannotRunError

SIMULATED_MODEL = "simulated"
LARGEST_LISTING = 1_000_000
# Weights, KV cache and the rest of this machine's work fit into a few GB with this context.
CONTEXT_LENGTH = "4096"
# More at once than two cores make sense of, and few enough to be filled when the engine's priorities are tried.
MAX_RUNNING = "32"


@dataclass(frozen=True)
class Wish:
    """What the person who typed `make run` asked for."""

    kind: str
    url: str = ""
    api_key: str = ""
    model: str = ""

    @property
    def needs_vllm(self) -> bool:
        return self.kind == "vllm"


def read_wish(environment: Mapping[str, str]) -> Wish:
    """The wish in ENGINE, ENGINE_URL, ENGINE_API_KEY and ENGINE_MODEL. Raises CannotRunError."""
    engine, url = environment.get("ENGINE", ""), environment.get("ENGINE_URL", "").rstrip("/")
    if url:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CannotRunError("ENGINE_URL must look like http://host:port/v1")
        return Wish("openai", url, environment.get("ENGINE_API_KEY", ""), environment.get("ENGINE_MODEL", ""))
    if engine not in ("", "vllm", "simulated"):
        raise CannotRunError("ENGINE must be vllm or simulated (or give ENGINE_URL=http://host:port/v1)")
    return Wish(engine or "vllm")


def engine_settings(wish: Wish, port: int, api_key: str, python: Path, model: Path) -> dict[str, str]:
    """The BURSAR_ variables for the wish; asks an attached server for its model. Raises CannotRunError."""
    if wish.kind == "openai":
        name = wish.model or first_model(wish)
        own = {"BURSAR_ENGINE_URL": wish.url, "BURSAR_ENGINE_API_KEY": wish.api_key, "BURSAR_ENGINE_MODEL": name}
        return own | {
            "BURSAR_ENGINE": "openai",
            "BURSAR_DEPLOYMENT": "attached-local",
            "BURSAR_MODEL_NAME": name.rstrip("/").rpartition("/")[2],
        }
    name = model.name if wish.needs_vllm else SIMULATED_MODEL
    own = {"BURSAR_ENGINE_PYTHON": str(python), "BURSAR_MODEL_PATH": str(model)} if wish.needs_vllm else {}
    return own | {
        "BURSAR_ENGINE": wish.kind,
        "BURSAR_DEPLOYMENT": "smollm2-local" if wish.needs_vllm else "simulated-local",
        "BURSAR_ENGINE_URL": f"http://127.0.0.1:{port}/v1",
        "BURSAR_ENGINE_API_KEY": api_key,
        "BURSAR_ENGINE_MODEL": name,
        "BURSAR_MODEL_NAME": name,
        "BURSAR_CONTEXT_LENGTH": CONTEXT_LENGTH,
        "BURSAR_ENGINE_MAX_RUNNING": MAX_RUNNING if wish.needs_vllm else "0",
    }


def first_model(wish: Wish) -> str:
    """The name of the first model that an attached server lists. Raises CannotRunError."""
    request = urllib.request.Request(f"{wish.url}/models")  # noqa: S310 - read_wish let only HTTP through
    if wish.api_key:
        request.add_header("Authorization", f"Bearer {wish.api_key}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            return str(json.loads(response.read(LARGEST_LISTING))["data"][0]["id"])
    except urllib.error.HTTPError as failure:
        hint = " (set ENGINE_API_KEY)" if failure.code in (401, 403) else ""
        raise CannotRunError(f"{wish.url}/models answers with status {failure.code}{hint}") from None
    except (OSError, ValueError) as failure:
        if isinstance(failure, ValueError):
            raise CannotRunError(f"{wish.url}/models does not answer with a list of models") from None
        raise CannotRunError(f"no server answers at {wish.url}: is it running?") from None
    except (KeyError, IndexError, TypeError):
        raise CannotRunError(f"{wish.url}/models names no model: set ENGINE_MODEL") from None
