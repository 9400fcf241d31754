"""`manage.py sagemaker_plan <deployment> [--apply | --delete]`: a deployment's SageMaker calls, shown or made."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inference.models import Deployment
from inference.places.sagemaker import PlaceError, connect
from inference.places.sagemaker_plan import PlanError, SageMakerSettings, plan_of


class Command(BaseCommand):
    help = "Show the calls that make a deployment on SageMaker as JSON; make them, or remove what they made."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("deployment")
        way = parser.add_mutually_exclusive_group()
        way.add_argument("--apply", action="store_true", help="Create what is missing, update the rest.")
        way.add_argument("--delete", action="store_true", help="Remove what there is.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            deployment = Deployment.objects.select_related("model_version").get(slug=options["deployment"])
            plan = plan_of(deployment, SageMakerSettings.load())
            if not (options["apply"] or options["delete"]):
                self.stdout.write(json.dumps(plan.calls(), indent=2))
                return
            region = os.environ.get("BURSAR_SAGEMAKER_REGION", "")
            if not region:
                raise PlanError("BURSAR_SAGEMAKER_REGION is not set.")
            place = connect(region)
            done = place.apply(plan) if options["apply"] else place.delete(plan)
        except Deployment.DoesNotExist:
            raise CommandError("There is no such deployment.") from None
        except (PlanError, PlaceError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write("\n".join(done) or "Nothing to do.")
