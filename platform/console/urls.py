"""Every path that the web process answers over HTTP. The socket's path is in console.asgi."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.permissions import IsAuthenticated

from console.accounts.views import SignIn, SignOut, admin_sign_in
from console.chat.views import page
from console.health import healthz, readyz
from console.operations.alerts import Alerts
from console.operations.metrics import metrics

handler400 = "console.errors.bad_request"
handler403 = "console.errors.permission_denied"
handler404 = "console.errors.not_found"
handler500 = "console.errors.server_error"

api = [path("api/", include("console.chat.urls"))]

urlpatterns = [
    path("", page, name="chat"),
    path("sign-in", SignIn.as_view(), name="sign-in"),
    path("sign-out", SignOut.as_view(), name="sign-out"),
    path("admin/login/", admin_sign_in),  # one way to sign in, before the admin's own
    path("admin/", admin.site.urls),
    path(
        "api/schema", SpectacularJSONAPIView.as_view(urlconf=api, permission_classes=[IsAuthenticated]), name="schema"
    ),
    path("api/alerts", Alerts.as_view(), name="alerts"),
    *api,
    path("v1/", include("console.api.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
]
