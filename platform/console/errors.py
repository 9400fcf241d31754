"""Errors of the pages and of everything under /api: OpenAI's body for programs, Django's page for people."""

from __future__ import annotations

from typing import Any

import redis
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response

from compliance.crypto.record_key import PayloadBroken
from console.http import request_id
from inference.errors import Refusal

_PROGRAMS = ("/api/", "/v1/")
_RETRY_AFTER_S = 2.0

UNAUTHENTICATED = Refusal("invalid_api_key", "Sign in, or send a valid API key as a bearer token.")
NOTHING_HERE = Refusal("not_found", "There is nothing at this address.")
MALFORMED = Refusal("invalid_value", "The request is malformed.")
FORBIDDEN = Refusal("permission_denied", "This is not allowed.")
FAILED = Refusal("internal_error", "The server failed to answer.")
DATABASE_GONE = Refusal(
    "audit_unavailable", "The record cannot be reached; try again shortly.", retry_after_s=_RETRY_AFTER_S
)
BROKER_GONE = Refusal(
    "overloaded", "The message broker cannot be reached; try again shortly.", retry_after_s=_RETRY_AFTER_S
)


def openai_response(exception: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler: whatever a view raises, in OpenAI's shape. None leaves it to Django's 500."""
    refusal = _refusal(exception)
    if refusal is None:
        return None
    headers = {}
    if refusal.code == "invalid_api_key":
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(round(refusal.retry_after_s))
    return Response({"error": refusal.body()}, status=refusal.status, headers=headers)


def _refusal(exception: Exception) -> Refusal | None:
    match exception:
        case Refusal():
            return exception
        case exceptions.ValidationError():
            return _first_fault(exception.detail)
        case exceptions.ParseError():
            return Refusal("invalid_json", "The body is not valid JSON.")
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return UNAUTHENTICATED
        case exceptions.PermissionDenied():
            return Refusal("permission_denied", str(exception.detail))
        case Http404() | exceptions.NotFound():
            return NOTHING_HERE
        case exceptions.MethodNotAllowed():
            return Refusal("method_not_allowed", str(exception.detail))
        case exceptions.APIException():
            return Refusal("unsupported", str(exception.detail))
        case OperationalError() | InterfaceError():
            return DATABASE_GONE
        case redis.RedisError():
            return BROKER_GONE
        case PayloadBroken():
            return Refusal("internal_error", "The record of this conversation does not open.")
    return None


def _first_fault(detail: Any, param: str | None = None) -> Refusal:
    """The first of a serializer's complaints, with the name of its field."""
    if isinstance(detail, dict):
        field, inner = next(iter(detail.items()))
        return _first_fault(inner, None if field == "non_field_errors" else str(field))
    if isinstance(detail, list):
        return _first_fault(detail[0], param)
    return Refusal("invalid_value", f"{param}: {detail}" if param else str(detail), param)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _json(MALFORMED) if _is_program(request) else defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _json(FORBIDDEN) if _is_program(request) else defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _json(NOTHING_HERE) if _is_program(request) else defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    if _is_program(request):
        return _json(FAILED)
    # No context processors: what they read may be what broke.
    return HttpResponse(render_to_string("500.html", {"request_id": request_id(request)}), status=500)


def _is_program(request: HttpRequest) -> bool:
    return request.path_info.startswith(_PROGRAMS)


def _json(refusal: Refusal) -> JsonResponse:
    return JsonResponse({"error": refusal.body()}, status=refusal.status)
