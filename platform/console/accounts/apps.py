from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "console.accounts"
    label = "accounts"
    verbose_name = "Accounts"

    def ready(self) -> None:
        from console.accounts import history

        history.keep()
