"""How callers of /api say who they are: an API key as a bearer token, or the session with its CSRF token."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from console.accounts import credentials, queries
from console.accounts.principal import Principal


class Program:
    """Stands where a view expects a user when the caller is a program: signed in, and no person."""

    is_authenticated = True
    is_active = True
    is_anonymous = False
    is_staff = False
    is_superuser = False
    pk = None


class APIKeyAuthentication(BaseAuthentication):
    """A bearer token decides alone: one that is not valid is refused, whatever session comes with it."""

    def authenticate(self, request: Request) -> tuple[Program, Principal] | None:
        header = request.headers.get("Authorization", "")
        if header[:6].lower() != "bearer":
            return None
        key = credentials.bearer_key(header)
        row = queries.usable_key(key) if key else None
        if row is None:
            raise AuthenticationFailed
        return Program(), queries.principal_of_key(row)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def caller(request: Request) -> Principal:
    """Who asks. PermissionDenied for somebody who signed in and belongs to no organisation."""
    if isinstance(request.auth, Principal):
        return request.auth
    member = getattr(request.user, "member", None)
    if member is None:
        raise PermissionDenied("You belong to no organisation.")
    return queries.principal_of_member(member)


class APIKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the key in the API's schema."""

    target_class = APIKeyAuthentication
    name = "APIKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "bsk_…"}
