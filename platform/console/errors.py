"""Errors of the pages and of everything under /api: OpenAI's error body for programs, Django's page for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response

_PROGRAMS = ("/api/", "/v1/")


@dataclass(frozen=True, slots=True)
class Problem:
    """One refusal as callers see it; docs/api.md lists the codes."""

    status: int
    kind: str
    code: str
    message: str
    param: str | None = None

    def body(self) -> dict[str, dict[str, str | None]]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class Refused(exceptions.APIException):
    """Raised by a view that knows exactly which refusal it means."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message, problem.code)
        self.problem = problem


def invalid(message: str, *, code: str = "invalid_value", param: str | None = None, status: int = 400) -> Problem:
    return Problem(status, "invalid_request_error", code, message, param)


UNAUTHENTICATED = Problem(
    401, "authentication_error", "invalid_api_key", "Sign in, or send a valid API key as a bearer token."
)
DATABASE_GONE = Problem(503, "server_error", "audit_unavailable", "The record cannot be reached; try again shortly.")
BROKER_GONE = Problem(503, "server_error", "overloaded", "The message broker cannot be reached; try again shortly.")

_RETRY_AFTER_S = "2"


def openai_response(exception: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler: whatever a view raises, in OpenAI's shape. None leaves it to Django's 500."""
    problem = _problem(exception)
    if problem is None:
        return None
    headers = {}
    if isinstance(exception, exceptions.APIException) and getattr(exception, "auth_header", None):
        headers["WWW-Authenticate"] = str(exception.auth_header)  # type: ignore[attr-defined]
    if problem.status == 503:
        headers["Retry-After"] = _RETRY_AFTER_S
    return Response(problem.body(), status=problem.status, headers=headers)


def _problem(exception: Exception) -> Problem | None:
    match exception:
        case Refused():
            return exception.problem
        case exceptions.ValidationError():
            return _first_fault(exception.detail)
        case exceptions.ParseError():
            return invalid("The body is not valid JSON.", code="invalid_json")
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return UNAUTHENTICATED
        case exceptions.PermissionDenied():
            return Problem(403, "permission_error", "permission_denied", str(exception.detail))
        case Http404() | exceptions.NotFound():
            return invalid("There is nothing at this address.", code="not_found", status=404)
        case exceptions.APIException():
            return invalid(str(exception.detail), code="unsupported", status=exception.status_code)
        case OperationalError() | InterfaceError():
            return DATABASE_GONE
        case redis.RedisError():
            return BROKER_GONE
    return None


def _first_fault(detail: Any, param: str | None = None) -> Problem:
    """The first of a serializer's complaints, with the name of its field."""
    if isinstance(detail, dict):
        field, inner = next(iter(detail.items()))
        return _first_fault(inner, None if field == "non_field_errors" else str(field))
    if isinstance(detail, list):
        return _first_fault(detail[0], param)
    return invalid(f"{param}: {detail}" if param else str(detail), param=param)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_program(request):
        return _json(invalid("The request is malformed."))
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_program(request):
        return _json(Problem(403, "permission_error", "permission_denied", "This is not allowed."))
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_program(request):
        return _json(invalid("There is nothing at this address.", code="not_found", status=404))
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    if _is_program(request):
        return _json(Problem(500, "server_error", "internal_error", "The server failed to answer."))
    return defaults.server_error(request)


def _is_program(request: HttpRequest) -> bool:
    return request.path_info.startswith(_PROGRAMS)


def _json(problem: Problem) -> JsonResponse:
    return JsonResponse(problem.body(), status=problem.status)
