"""The conversations' part of /api: what the chat page reads and changes apart from the answers themselves."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.authentication import caller
from console.accounts.principal import Principal
from console.chat import queries, serializers, tickets
from console.chat.actions.delete_conversation import delete_conversation
from console.chat.actions.rename_conversation import rename_conversation
from console.chat.catalog import available_models
from console.chat.models import Conversation
from console.chat.valkey import connection
from inference.errors import Refusal


class ConversationsView(APIView):
    @extend_schema(operation_id="list_conversations", responses=serializers.ConversationsSerializer)
    def get(self, request: Request) -> Response:
        """The caller's conversations, newest first."""
        listed = queries.list_conversations(caller(request))
        return Response(serializers.ConversationsSerializer({"conversations": listed}).data)


class ConversationView(APIView):
    @extend_schema(operation_id="read_conversation", responses=serializers.ConversationTurnsSerializer)
    def get(self, request: Request, conversation_id: str) -> Response:
        """A conversation with its turns."""
        found = queries.access_conversation_by_id(*_which(request, conversation_id))
        conversation = _existing(found)
        body = {
            "id": conversation.pk,
            "title": queries.listed(conversation).title,
            "turns": queries.read_conversation(conversation),
        }
        return Response(serializers.ConversationTurnsSerializer(body).data)

    @extend_schema(
        operation_id="rename_conversation",
        request=serializers.TitleSerializer,
        responses=serializers.ConversationSerializer,
    )
    def patch(self, request: Request, conversation_id: str) -> Response:
        """Rename a conversation."""
        if request.stream is None:
            raise Refusal("missing_body", "The request has no body.")
        wanted = serializers.TitleSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        renamed = rename_conversation(*_which(request, conversation_id), wanted.validated_data["title"])
        return Response(serializers.ConversationSerializer(queries.listed(_existing(renamed))).data)

    @extend_schema(operation_id="delete_conversation", responses={204: None})
    def delete(self, request: Request, conversation_id: str) -> Response:
        """Take a conversation out of the list; the record of it stays."""
        if not delete_conversation(*_which(request, conversation_id)):
            raise _unknown()
        return Response(status=204)


class TicketView(APIView):
    @extend_schema(operation_id="create_ticket", request=None, responses=serializers.TicketSerializer)
    def post(self, request: Request) -> Response:
        """A ticket that opens one socket within 30 seconds."""
        body = {"ticket": tickets.issue(connection(), _bearer(request)), "expires_in": tickets.LIFETIME_S}
        return Response(serializers.TicketSerializer(body).data, headers={"Cache-Control": "no-store"})


class ModelsView(APIView):
    @extend_schema(operation_id="list_models", responses=serializers.ModelsSerializer)
    def get(self, request: Request) -> Response:
        """The models that the caller can name."""
        return Response(serializers.ModelsSerializer({"models": available_models(connection())}).data)


def _bearer(request: Request) -> tickets.Bearer:
    principal = caller(request)
    # A key decides alone: the session that a cookie brings along has then no part in it.
    session_key = request.session.session_key if principal.api_key_id is None else None
    return tickets.Bearer(principal, session_key)


def _which(request: Request, conversation_id: str) -> tuple[Principal, UUID]:
    """Who asks for which conversation. An id that is none is an unknown one."""
    principal = caller(request)
    try:
        return principal, UUID(conversation_id)
    except ValueError:
        raise _unknown() from None


def _existing(conversation: Conversation | None) -> Conversation:
    if conversation is None:
        raise _unknown()
    return conversation


def _unknown() -> Refusal:
    return Refusal("conversation_not_found", "There is no such conversation.", "conversation")
