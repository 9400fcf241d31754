"""The bodies of /api as docs/api.md describes them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.chat.queries import ReadTurn, is_simulated
from console.chat.titles import MAX_LENGTH
from console.parsing import StrictSerializer, TextField
from inference.exchange_models import Exchange


class TitleSerializer(StrictSerializer):
    title = TextField(min_length=1, max_length=MAX_LENGTH)


class ConversationSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    title = serializers.CharField()
    updated_at = serializers.DateTimeField()


class ConversationsSerializer(serializers.Serializer[Any]):
    conversations = ConversationSerializer(many=True)


class UsageSerializer(serializers.Serializer[Any]):
    prompt_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    total_tokens = serializers.IntegerField()
    cost_usd = serializers.CharField(allow_null=True)


class TurnSerializer(serializers.Serializer[Any]):
    """A turn; `prompt` is as the model saw it, with personal data masked."""

    exchange = serializers.UUIDField(source="exchange.id")
    prompt = serializers.CharField(allow_null=True)
    answer = serializers.CharField(allow_null=True)
    status = serializers.CharField(source="exchange.status")
    finish_reason = serializers.SerializerMethodField()
    error_code = serializers.SerializerMethodField()
    model = serializers.CharField(source="exchange.model")
    simulated = serializers.SerializerMethodField()
    receipt = serializers.UUIDField(allow_null=True)
    usage = serializers.SerializerMethodField()
    ttft_ms = serializers.FloatField(source="exchange.ttft_ms", allow_null=True)
    e2e_ms = serializers.FloatField(source="exchange.e2e_ms", allow_null=True)
    at = serializers.DateTimeField(source="exchange.opened_at")
    findings = serializers.DictField(child=serializers.DictField(child=serializers.IntegerField()))

    def get_finish_reason(self, turn: ReadTurn) -> str | None:
        return turn.exchange.finish_reason or None

    def get_error_code(self, turn: ReadTurn) -> str | None:
        return turn.exchange.error_code or None

    def get_simulated(self, turn: ReadTurn) -> bool:
        return is_simulated(turn.exchange)

    @extend_schema_field(UsageSerializer(allow_null=True))
    def get_usage(self, turn: ReadTurn) -> dict[str, Any] | None:
        return _usage(turn.exchange)


class ConversationTurnsSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    title = serializers.CharField()
    turns = TurnSerializer(many=True)


class TicketSerializer(serializers.Serializer[Any]):
    ticket = serializers.CharField()
    expires_in = serializers.IntegerField()


class ModelSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    simulated = serializers.BooleanField()
    ready = serializers.BooleanField()


class ModelsSerializer(serializers.Serializer[Any]):
    models = ModelSerializer(many=True)


def _usage(exchange: Exchange) -> dict[str, Any] | None:
    """The usage as `answer.finished` gives it; None where no attempt reported one."""
    if exchange.prompt_tokens is None or exchange.completion_tokens is None:
        return None
    return {
        "prompt_tokens": exchange.prompt_tokens,
        "cached_tokens": exchange.cached_tokens or 0,
        "completion_tokens": exchange.completion_tokens,
        "total_tokens": exchange.prompt_tokens + exchange.completion_tokens,
        "cost_usd": None if exchange.cost is None else f"{exchange.cost.normalize():f}",
    }
