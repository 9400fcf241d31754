"""`manage.py route_explain`: where a request would go now, or where an exchange went, and why."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inference.errors import Refusal
from inference.routing.explaining import explain_now, recorded_explanation
from inference.routing.request_form import RequestForm
from inference.routing.wording import lines_of


class Command(BaseCommand):
    help = (
        "Describe a request, or name an exchange. A request is explained with the configuration and the workers of this"
        " moment; latency is measured in the web processes only, so that the predictions here are rough."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        for name, field in RequestForm.base_fields.items():
            choices = [value for value, _ in getattr(field, "choices", [])] or None
            about = str(field.help_text).replace("%", "%%") or None
            parser.add_argument(f"--{name.replace('_', '-')}", default=None, choices=choices, help=about)

    def handle(self, *args: Any, **options: Any) -> None:
        given = {name: options[name] for name in RequestForm.base_fields if options.get(name) is not None}
        form = RequestForm.given(given)
        if not form.is_valid():
            faults = (f"--{name.replace('_', '-')}: {' '.join(map(str, said))}" for name, said in form.errors.items())
            raise CommandError("; ".join(faults))
        self.stdout.write("\n".join(self._lines(form)))

    def _lines(self, form: RequestForm) -> list[str]:
        if exchange := form.cleaned_data["exchange"]:
            recorded = recorded_explanation(exchange)
            if recorded is None:
                raise CommandError("No explanation is recorded for this exchange.")
            return list(lines_of(recorded))
        try:
            facts = form.facts()
            outcome = explain_now(facts)
        except Refusal as refusal:
            raise CommandError(str(refusal)) from None
        refused = [f"{'refused':<12}{outcome.refusal}"] if outcome.refusal else []
        language = f"{'language':<12}{facts.language or 'unknown'}"
        return [language, *lines_of(outcome.explanation), *refused]
