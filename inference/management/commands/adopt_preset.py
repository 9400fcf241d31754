"""`manage.py adopt_preset [name]`: put a reference workload's model into the catalog, as a draft."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from inference.actions.adopt_preset import adopt_preset
from inference.budget_models import Budget
from inference.presets import PRESETS


class Command(BaseCommand):
    help = "Make a draft version and a switched-off deployment from a preset. Without a name, show what there is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", choices=PRESETS)

    def handle(self, *args: Any, **options: Any) -> None:
        name: str | None = options["name"]
        if name is None:
            for known, preset in PRESETS.items():
                self.stdout.write(f"{known:<28}{preset.about}")
            return
        preset = PRESETS[name]
        version = adopt_preset(preset)
        budget = Budget.objects.get(organisation=None, period=preset.cap[0])
        self.stdout.write(f"{version} is in the catalog. The platform's budget: {budget.amount} USD a {budget.period}.")
        self.stdout.write("Assumptions to look at:")
        for field, why in preset.assumed.items():
            self.stdout.write(f"  {field:<20}{why}")
