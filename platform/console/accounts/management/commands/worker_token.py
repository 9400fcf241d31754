"""`manage.py worker_token <deployment>`: print, once, what a GPU host needs to join."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.accounts.actions.make_worker_token import make_worker_token
from gpu_workers.settings import SettingsError, seal_key
from inference.models import Deployment


class Command(BaseCommand):
    help = "Make a token with which a GPU host joins as a worker of this deployment. It holds the seal key."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("deployment", help="the deployment's name in the catalog")

    def handle(self, *args: Any, **options: Any) -> None:
        deployment = Deployment.objects.filter(slug=options["deployment"]).first()
        if deployment is None:
            known = ", ".join(Deployment.objects.values_list("slug", flat=True)) or "none"
            raise CommandError(f"No deployment has this name. There are: {known}.")
        try:
            token = make_worker_token(deployment, seal_key())
        except SettingsError as error:
            raise CommandError(str(error)) from None
        self.stderr.write("It opens what lies in the broker: keep it as you keep the seal key. It is shown once.")
        self.stdout.write(token)
