"""Refusals and failures in the one form that both transports pass on (docs/api.md, Errors)."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import structlog

log = structlog.get_logger(__name__)

# Status and type of every code a caller can meet.
CODES: dict[str, tuple[int, str]] = {
    "invalid_json": (400, "invalid_request_error"),
    "invalid_value": (400, "invalid_request_error"),
    "unknown_event": (400, "invalid_request_error"),
    "missing_body": (400, "invalid_request_error"),
    "unsupported": (400, "invalid_request_error"),
    "frame_too_large": (400, "invalid_request_error"),
    "duplicate_id": (400, "invalid_request_error"),
    "empty_text": (400, "invalid_request_error"),
    "content_filter": (400, "invalid_request_error"),
    "context_length_exceeded": (400, "invalid_request_error"),
    "invalid_api_key": (401, "authentication_error"),
    "permission_denied": (403, "permission_error"),
    "model_not_found": (404, "invalid_request_error"),
    "not_found": (404, "invalid_request_error"),
    "conversation_not_found": (404, "invalid_request_error"),
    "exchange_not_found": (404, "invalid_request_error"),
    "method_not_allowed": (405, "invalid_request_error"),
    "body_too_large": (413, "invalid_request_error"),
    "rate_limit_exceeded": (429, "rate_limit_error"),
    "insufficient_quota": (429, "insufficient_quota"),
    "engine_failed": (502, "server_error"),
    "outcome_unknown": (502, "server_error"),
    "overloaded": (503, "server_error"),
    "audit_unavailable": (503, "server_error"),
    "inspection_unavailable": (503, "server_error"),
    "deadline_exceeded": (504, "server_error"),
    "internal_error": (500, "server_error"),
}


@dataclass(eq=False)
class Refusal(Exception):
    """Why a request is not served. `message` is shown to the caller and never quotes what they sent."""

    code: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    # Whether `param` is a name that the caller made up: it is told to them and written down nowhere.
    foreign_param: bool = False

    @property
    def recorded_param(self) -> str | None:
        return "(unknown field)" if self.foreign_param else self.param

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def status(self) -> int:
        return CODES[self.code][0]

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return {"message": self.message, "type": CODES[self.code][1], "param": self.param, "code": self.code}


def log_unexpected(event: str, error: BaseException, **facts: str) -> None:
    """Where an unforeseen exception came from, without its text: that could quote what was said."""
    frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    log.error(event, error=type(error).__name__, frames=frames, **facts)
