"""The chat page. Everything that moves on it comes over the socket and `/api`; this renders the frame around it."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.accounts.models import Organisation


@require_safe
@never_cache
@login_required
def page(request: HttpRequest) -> HttpResponse:
    """The chat page of the signed-in user."""
    organisation = Organisation.objects.filter(members__user__username=request.user.get_username()).first()
    return render(request, "console/chat.html", {"organisation": organisation})
