import logging

from django.apps import AppConfig
from django.db.models.signals import pre_save


class AccountsConfig(AppConfig):
    name = "console.accounts"
    label = "accounts"
    verbose_name = "Accounts"

    def ready(self) -> None:
        from axes.models import AccessAttempt
        from axes.signals import user_locked_out

        from console.accounts import history, lockout

        history.keep()
        pre_save.connect(lockout.keep_no_content, sender=AccessAttempt)
        user_locked_out.connect(lockout.record_lockout)
        # It would write a line for every attempt, with what the browser says of itself.
        logging.getLogger("axes").setLevel(logging.ERROR)
