"""What every HTTP request gets, whichever view answers it: an id, a content security policy, a named actor.

Each middleware here runs natively in both of Django's modes, so that an async view is not moved to a thread.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from inspect import iscoroutinefunction
from typing import cast

from asgiref.sync import markcoroutinefunction
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from structlog.contextvars import bound_contextvars

from console.accounts.history import acting
from console.accounts.models import User
from gpu_workers.identifiers import uuid7

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_KEPT_ID = "bursar.request_id"
_ADMIN = "/admin/"
_CONFIGURES = (_ADMIN, "/api/")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})

STRICT_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
# The admin's Alpine evaluates the expressions in its attributes, and its theme colours are an inline style.
ADMIN_POLICY = STRICT_POLICY | {
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
}


def request_id(request: HttpRequest) -> str:
    """The id under which this request appears in its response, the logs and the record."""
    return cast(str, request.META.get(_KEPT_ID, ""))


class _Middleware:
    """A step around the view: `during` surrounds it, `finish` completes its response."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._call_async(request)
        with self.during(request):
            return self.finish(request, cast(HttpResponseBase, self.get_response(request)))

    async def _call_async(self, request: HttpRequest) -> HttpResponseBase:
        with self.during(request):
            return self.finish(request, await cast(Awaitable[HttpResponseBase], self.get_response(request)))

    def during(self, request: HttpRequest) -> AbstractContextManager[object]:
        return nullcontext()

    def finish(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response


class RequestIdMiddleware(_Middleware):
    """Takes the caller's `x-request-id` where it is well formed, or gives one, and binds it to the logs."""

    def during(self, request: HttpRequest) -> AbstractContextManager[object]:
        given = request.headers.get("x-request-id", "")
        request.META[_KEPT_ID] = given if REQUEST_ID.match(given) else str(uuid7())
        return bound_contextvars(request_id=request.META[_KEPT_ID])

    def finish(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers["x-request-id"] = request_id(request)
        return response


class ContentSecurityPolicyMiddleware(_Middleware):
    """Sets a strict policy, and the admin's own where the admin answers. A view's own policy stands."""

    def finish(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault("Content-Security-Policy", content_security_policy(request))
        if request.path_info.startswith("/api/"):
            response.headers.setdefault("Cache-Control", "no-store")
        return response


class AuditActorMiddleware(_Middleware):
    """Names the signed-in user in the history of configuration changes.

    Only where configuration is changed: auditlog's own middleware would read the session of every request
    and move it to a thread, the streamed answers included.
    """

    def during(self, request: HttpRequest) -> AbstractContextManager[object]:
        if request.method in _READS or not request.path_info.startswith(_CONFIGURES):
            return nullcontext()
        # Lazy: the session is read only when there is a change to keep.
        return acting(cast(User, request.user))


def content_security_policy(request: HttpRequest) -> str:
    policy = ADMIN_POLICY if request.path_info.startswith(_ADMIN) else STRICT_POLICY
    sources = policy | {"connect-src": f"{policy['connect-src']}{_sockets(request)}"}
    return "; ".join(f"{directive} {allowed}" for directive, allowed in sources.items())


def _sockets(request: HttpRequest) -> str:
    """The host's own sockets as sources: 'self' covers them in some browsers only."""
    try:
        host = request.get_host()
    except DisallowedHost:
        return ""
    # A bracketed IPv6 address is no valid source; there 'self' has to do.
    return "" if host.startswith("[") else f" ws://{host} wss://{host}"
