from django.apps import AppConfig


class ChatConfig(AppConfig):
    name = "console.chat"
    label = "chat"
    verbose_name = "Chat"
