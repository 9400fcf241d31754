"""`manage.py evaluate <name> <version>`: run a model version's evaluation set here and show its verdicts."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inference.evaluation.actions import CannotEvaluate, new_run, run_evaluation
from inference.evaluation.models import RunState
from inference.models import ModelVersion


class Command(BaseCommand):
    help = "Run the evaluation set of a model version on its own deployment. What it answers is judged and not kept."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The name that callers use.")
        parser.add_argument("version")

    def handle(self, *args: Any, **options: Any) -> None:
        version = ModelVersion.objects.filter(name=options["name"], version=options["version"]).first()
        if version is None:
            raise CommandError("There is no such model version.")
        try:
            run = run_evaluation(new_run(version.pk).pk)
        except CannotEvaluate as error:
            raise CommandError(str(error)) from None
        if run.state != RunState.FINISHED:
            raise CommandError(f"The run failed: {run.error_code}")
        for verdict in run.verdicts.all():
            said = "passed" if verdict.passed else f"failed: {verdict.reason}"
            self.stdout.write(f"{verdict.position:<5}{verdict.kind:<14}{said}")
        self.stdout.write(f"{run.passed} of {run.total} passed")
