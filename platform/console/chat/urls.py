"""The paths under /api."""

from __future__ import annotations

from django.urls import path

from console.chat import api_views

urlpatterns = [
    path("conversations", api_views.ConversationsView.as_view()),
    path("conversations/<str:conversation_id>", api_views.ConversationView.as_view()),
    path("chat/ticket", api_views.TicketView.as_view()),
    path("models", api_views.ModelsView.as_view()),
]
