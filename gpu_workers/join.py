"""Make this machine a GPU host of a platform: `python -m gpu_workers.join --broker URL --token-file FILE …`.

Checks what it was given against the broker, then runs the engine's supervisor and the worker until one of them ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, get_args

import structlog

from gpu_workers.acquaintance import JoinRefused, meet_platform
from gpu_workers.children import run_together
from gpu_workers.enrolment import Enrolment, TokenRefused, read_token
from gpu_workers.host_programs import free_port, host_programs
from gpu_workers.logging import configure_logging
from gpu_workers.settings import EngineKind, SettingsError, load

log = structlog.get_logger(__name__)

ROOT = Path(__file__).resolve().parents[1]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
STANDARD_INPUT = "-"
MOST_TOKEN_BYTES = 1024
SECRET = re.compile(r"bwt_[^\s']*|(?<=://)[^\s']*@")
MOST_AT_ONCE = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """1: the host cannot join; 2: it was asked in the wrong way. Otherwise what `run_together` says."""
    configure_logging()
    options = _parser().parse_args(arguments)
    try:
        enrolment = read_token(_token(options))
        _set_environment(options, enrolment)
        settings = load()
        if not asyncio.run(meet_platform(settings.valkey_url, settings.seal_key)):
            log.warning("nobody_to_compare_seal_keys_with")
    except (TokenRefused, JoinRefused, SettingsError) as error:
        print(f"join: {error}", file=sys.stderr)  # noqa: T201
        return 1
    log.info("joining", deployment=settings.deployment, engine=settings.engine, url=settings.engine_url)
    return asyncio.run(run_together(host_programs(options.at_once), os.environ))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """As argparse has it, but what it repeats of the command line may be the token, or an address's password."""
        super().error(SECRET.sub("…", message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="join", description="Make this machine a GPU host of a platform.", allow_abbrev=False)
    add = parser.add_argument
    add("--broker", metavar="URL", help="the platform's Valkey (default: BURSAR_VALKEY_URL, which only you can read)")
    token = parser.add_mutually_exclusive_group(required=True)
    token.add_argument("--token-file", metavar="FILE", help="where the token lies; - reads it from standard input")
    token.add_argument("--token", help="the token itself, which every user of this machine can then read")
    add("--engine", choices=get_args(EngineKind), help="what answers (default: BURSAR_ENGINE, or vllm)")
    add("--engine-url", metavar="URL", help="where it listens (default: BURSAR_ENGINE_URL, or a free port of loopback)")
    add(
        "--engine-model",
        metavar="NAME",
        help="its name for the model (default: BURSAR_ENGINE_MODEL, or the deployment's)",
    )
    add(
        "--engine-python", metavar="FILE", help="the Python that has vLLM (default: BURSAR_ENGINE_PYTHON, .venv-engine)"
    )
    add("--model-path", metavar="DIRECTORY", help="the weights (default: BURSAR_MODEL_PATH)")
    add("--context-length", metavar="TOKENS", type=int, help="of prompt and answer (default: BURSAR_CONTEXT_LENGTH)")
    add("--max-running", metavar="N", type=int, help="requests that the engine works on at once")
    add("--at-once", metavar="N", type=_at_once, default=256, help="answers that the worker takes at once (256)")
    return parser


def _at_once(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST_AT_ONCE}")
    return number


def _token(options: argparse.Namespace) -> str:
    """Raises `TokenRefused`."""
    if options.token is not None:
        return str(options.token)
    try:
        with open(0 if options.token_file == STANDARD_INPUT else options.token_file, "rb") as file:
            return file.read(MOST_TOKEN_BYTES).decode("ascii", errors="replace")
    except OSError as error:
        raise TokenRefused(f"the token's file cannot be read: {error.strerror}.") from None


def _set_environment(options: argparse.Namespace, enrolment: Enrolment) -> None:
    """What the supervisor, the worker and `load` read. A flag goes before a variable that is there already."""
    given = {
        "BURSAR_VALKEY_URL": options.broker or os.environ.get("BURSAR_VALKEY_URL", ""),
        "BURSAR_SEAL_KEY": enrolment.seal_key.hex(),
        "BURSAR_DEPLOYMENT": enrolment.deployment,
        "BURSAR_ENGINE": options.engine,
        "BURSAR_ENGINE_URL": options.engine_url,
        "BURSAR_ENGINE_MODEL": options.engine_model,
        "BURSAR_ENGINE_PYTHON": options.engine_python,
        "BURSAR_MODEL_PATH": options.model_path,
        "BURSAR_CONTEXT_LENGTH": options.context_length,
        "BURSAR_ENGINE_MAX_RUNNING": options.max_running,
    }
    os.environ.update({name: str(value) for name, value in given.items() if value is not None})
    for name, value in _defaults(enrolment).items():
        os.environ[name] = os.environ.get(name) or value


def _defaults(enrolment: Enrolment) -> dict[str, str]:
    """What an engine of our own needs and nobody said; an attached server's address and model only its owner knows."""
    if os.environ.get("BURSAR_ENGINE") == "openai":
        return {}
    defaults = {
        "BURSAR_ENGINE_MODEL": enrolment.deployment,
        "BURSAR_ENGINE_URL": f"http://127.0.0.1:{free_port()}/v1",
        # Nobody else speaks to this engine: a key that changes with every start will do.
        "BURSAR_ENGINE_API_KEY": secrets.token_urlsafe(32),
    }
    if ENGINE_PYTHON.exists():
        defaults["BURSAR_ENGINE_PYTHON"] = str(ENGINE_PYTHON)
    return defaults


if __name__ == "__main__":
    sys.exit(main())
