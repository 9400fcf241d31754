"""The OpenAI-compatible API's paths, but for chat completions, which console.asgi takes before Django."""

from django.urls import path

from console.api.views import ModelDetail, ModelList

urlpatterns = [
    path("models", ModelList.as_view()),
    path("models/<path:name>", ModelDetail.as_view()),
]
