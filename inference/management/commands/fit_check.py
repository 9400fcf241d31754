"""`manage.py fit_check NAME VERSION`: on how many of which accelerator a model version fits."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inference.fitting.fit_form import FitForm
from inference.fitting.queries import NotKnown, Report, check_fit
from inference.fitting.wording import HEADINGS, needs, notes, rows
from inference.models import ModelVersion


class Command(BaseCommand):
    help = "Compute what a model version takes of memory, on what it fits, its cost a month and its best TPOT."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("version")
        for name, field in FitForm.base_fields.items():
            parser.add_argument(f"--{name}", default="", help=str(field.help_text))

    def handle(self, *args: Any, **options: Any) -> None:
        form = FitForm({name: options[name] for name in FitForm.base_fields})
        if not form.is_valid():
            raise CommandError("; ".join(f"--{name}: {' '.join(map(str, said))}" for name, said in form.errors.items()))
        version = ModelVersion.objects.filter(name=options["name"], version=options["version"]).first()
        if version is None:
            raise CommandError("There is no such model version.")
        try:
            report = check_fit(version, **form.cleaned_data)
        except NotKnown as unknown:
            raise CommandError(str(unknown)) from None
        self.stdout.write("\n".join(_lines(report)))


def _lines(report: Report) -> list[str]:
    table = [HEADINGS, *rows(report)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = [f"{name:<18}{said}" for name, said in needs(report)]
    lines += ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in table), "", *notes(report)]
    return lines
