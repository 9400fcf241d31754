"""What may stand in the catalog: where weights lie, what an engine is started with, and bounds that no price passes."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError

# A thousand times what answers of today's models cost: above it, somebody has mistaken the unit.
MAX_USD_PER_MILLION = Decimal(10_000)
MAX_USD_PER_HOUR = Decimal(100_000)
MAX_PARAMETERS_B = Decimal(100_000)
MAX_CONTEXT = 100_000_000
MAX_KV_BYTES = 1_000_000_000

MAX_ARGUMENTS = 64
MAX_ARGUMENT_LENGTH = 500

SHA256 = r"^[0-9a-f]{64}\Z"

SOURCES: dict[str, tuple[re.Pattern[str], str]] = {
    "path": (re.compile(r"/(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f]+"), "an absolute path, such as /models/small"),
    "hub": (
        re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w.-]+)?", re.ASCII),
        "owner/name or owner/name@revision",
    ),
    "s3": (re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^\x00-\x20?#]+"), "s3://bucket/key"),
    "sagemaker": (
        re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:model-package/[A-Za-z0-9/-]+"),
        "the ARN of a model package",
    ),
}

# Where the engine listens, what it is called, and what code it runs beside the model are the host's own to say.
HOSTS_FLAGS = frozenset(
    {
        *("host", "port", "uds", "root-path", "model", "served-model-name", "config", "middleware", "headless"),
        *("enable-log-requests", "enable-log-outputs", "log-config-file", "kv-events-config", "worker-extension-cls"),
        *("otlp-traces-endpoint", "ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs"),
    }
)

# Whole words of a flag's name: --max-num-batched-tokens and --tokenizer hold no secret, --hf-token does.
SECRET_WORDS = frozenset(
    {"key", "apikey", "token", "password", "passwd", "passphrase", "secret", "credential", "credentials", "auth"}
)
SECRET_VALUE = re.compile(
    r"^(hf_|sk-|bsk_|gh[pousr]_|AKIA|ASIA|Bearer\s)|\b(password|secret|api[_-]?key|access[_-]?key)\b\W{0,4}[=:]"
    r"|[A-Za-z_]*(TOKEN|SECRET|PASSWORD|KEY)=|://[^/\s]*:[^/\s]*@|-----BEGIN",
    re.IGNORECASE,
)


def check_source(kind: str, source: str) -> None:
    """Raises ValidationError for a source that is none of its kind. Without a kind there is none."""
    if not kind:
        if source:
            raise ValidationError({"source_kind": "Say what kind of source this is."})
        return
    if kind not in SOURCES:
        return  # the field's own choices say so
    pattern, expected = SOURCES[kind]
    if not pattern.fullmatch(source):
        raise ValidationError({"source": f"Expected {expected}."})


def check_engine_arguments(value: Any) -> None:
    """Raises ValidationError. The message never repeats a value: it may be the secret that is refused."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValidationError('Expected a JSON list of strings, such as ["--max-num-seqs", "64"].')
    if len(value) > MAX_ARGUMENTS:
        raise ValidationError(f"At most {MAX_ARGUMENTS} arguments.")
    for number, argument in enumerate(value, start=1):
        _check_argument(number, argument)


def _check_argument(number: int, argument: str) -> None:
    if not argument or len(argument) > MAX_ARGUMENT_LENGTH or not argument.isprintable():
        raise ValidationError(f"Argument {number} is empty, unprintable or longer than {MAX_ARGUMENT_LENGTH}.")
    name = argument.partition("=")[0] if argument.startswith("-") else ""
    if SECRET_WORDS & set(re.split(r"[-_.]", name.lower())) or SECRET_VALUE.search(argument):
        raise ValidationError(
            f"Argument {number} looks like a secret. Secrets belong into the environment of the worker's host."
        )
    # Argument parsers take a flag that is cut short for the whole one.
    flag = name.lstrip("-").replace("_", "-").lower()
    if flag in HOSTS_FLAGS or (flag and name.startswith("--") and any(one.startswith(flag) for one in HOSTS_FLAGS)):
        raise ValidationError(f"Argument {number} says what the worker's host says itself.")
