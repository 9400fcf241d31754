"""Reading the bodies that callers of /api send: bounded in size, strict in content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from inference.errors import Refusal


class BoundedJSONParser(BaseParser):
    """JSON of at most 1 MiB. DRF's own parser reads whatever is sent, and recurses as deep as it nests."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise Refusal("body_too_large", "The body is larger than 1 MiB.")
        try:
            return json.loads(body.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise ParseError from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields that it does not know, by name."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = sorted(str(name) for name in data if name not in self.fields)
            if unknown:
                raise serializers.ValidationError({unknown[0][:64]: "This field is not known."})
        return super().to_internal_value(data)


class TextField(serializers.CharField):
    """Text only: a number or a truth value is not taken for its spelling."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)
