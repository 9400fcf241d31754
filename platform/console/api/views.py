"""`/v1/models`: what a key can ask for, in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.authentication import APIKeyAuthentication
from inference.errors import Refusal
from inference.lifecycle.queries import served_deployments
from inference.models import ModelVersion


class ModelList(APIView):
    authentication_classes = [APIKeyAuthentication]
    permission_classes = [IsAuthenticated]

    def get(self, request: Request) -> Response:
        return Response({"object": "list", "data": [_model(version) for version in _served()]})


class ModelDetail(APIView):
    authentication_classes = [APIKeyAuthentication]
    permission_classes = [IsAuthenticated]

    def get(self, request: Request, name: str) -> Response:
        for version in _served():
            if version.name == name:
                return Response(_model(version))
        raise Refusal("model_not_found", "No such model, or it is not served.", param="model")


def _served() -> list[ModelVersion]:
    """One version for each name that is served."""
    found = ModelVersion.objects.filter(deployments__in=served_deployments()).order_by("created_at")
    return list({version.name: version for version in found}.values())


def _model(version: ModelVersion) -> dict[str, Any]:
    created = int(version.created_at.timestamp())
    return {"id": version.name, "object": "model", "created": created, "owned_by": "bursar"}
