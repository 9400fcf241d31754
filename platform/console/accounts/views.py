"""Signing in and out. There is one form for everyone; the admin sends people here too."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import urlencode


class SignIn(LoginView):
    template_name = "console/sign_in.html"


class SignOut(LogoutView):
    pass


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Where the admin sends a visitor whom it does not let in."""
    wanted = request.GET.get("next", "/admin/")
    response = redirect("sign-in")
    response["Location"] += f"?{urlencode({'next': wanted})}"
    return response
