"""Signing in and out. There is one form for everyone; the admin sends people here too."""

from __future__ import annotations

from threading import BoundedSemaphore
from typing import Any

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import urlencode

BUSY_AFTER_S = 2.0
# Checking a password takes tens of MB and milliseconds on purpose (scrypt): so many at once, and no more.
_checking = BoundedSemaphore(4)


class SignIn(LoginView):
    template_name = "console/sign_in.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not _checking.acquire(timeout=BUSY_AFTER_S):
            response = HttpResponse("Too many people are signing in. Try again in a moment.", status=503)
            response["Retry-After"] = "2"
            return response
        try:
            return super().post(request, *args, **kwargs)
        finally:
            _checking.release()


class SignOut(LogoutView):
    pass


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Where the admin sends a visitor whom it does not let in."""
    wanted = request.GET.get("next", "/admin/")
    response = redirect("sign-in")
    response["Location"] += f"?{urlencode({'next': wanted})}"
    return response
