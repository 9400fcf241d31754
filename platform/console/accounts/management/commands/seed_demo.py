"""`manage.py seed_demo`: the accounts and the model that `make run` shows, from its environment."""

from __future__ import annotations

import os
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from console.accounts import credentials
from console.accounts.actions.seed_accounts import Accounts, Login, seed_accounts
from inference.actions.offer_model import Offer, offer_model


class Command(BaseCommand):
    help = "Makes the demo's organisation, people, API key and model. A second run changes nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        accounts = Accounts(
            administrator=_login("BURSAR_ADMIN_USER", "BURSAR_ADMIN_PASSWORD"),
            officer=_login("BURSAR_OFFICER_USER", "BURSAR_OFFICER_PASSWORD"),
            user=_login("BURSAR_USER", "BURSAR_USER_PASSWORD"),
            api_key=_api_key(),
        )
        offer = Offer(_variable("BURSAR_MODEL_NAME"), _variable("BURSAR_DEPLOYMENT"), _variable("BURSAR_ENGINE"))
        try:
            with transaction.atomic():
                seed_accounts(accounts)
                offer_model(offer)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from None


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise CommandError(f"{name} is not set.")
    return value


def _login(user: str, password: str) -> Login:
    return Login(_variable(user), _variable(password))


def _api_key() -> str:
    key = _variable("BURSAR_API_KEY")
    if not credentials.is_key(key):
        raise CommandError("BURSAR_API_KEY is not `bsk_` and 43 URL-safe characters.")
    return key
