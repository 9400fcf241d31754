"""`POST /api/alerts`: a monitoring system asks for one more replica, within the deployment's bounds."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import redis
from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from inference.errors import Refusal
from inference.scaling import alerts

SIGNATURE = "X-Bursar-Signature"


class Alerts(APIView):
    """Whoever can sign may ask; nobody signs in."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def post(self, request: Request) -> Response:
        secret = alerts.alert_secret()
        if not secret:
            raise Refusal("not_found", "Alerts are not taken here: BURSAR_ALERT_SECRET is not set.")
        body = request._request.body
        if len(body) > alerts.MAX_BYTES:
            raise Refusal("body_too_large", f"The body is larger than {alerts.MAX_BYTES} bytes.")
        signature = request.headers.get(SIGNATURE, "")
        if signature:
            alerts.check_signature(secret, signature, body, time.time())
        else:
            alerts.check_bearer(secret, request.headers.get("Authorization", ""))
        found = alerts.parse(body)
        with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=5) as valkey:
            if signature:
                alerts.remember(valkey, signature)
            return Response(msgspec.to_builtins(alerts.act_on(found, valkey)))
