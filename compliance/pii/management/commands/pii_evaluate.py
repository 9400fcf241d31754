"""`manage.py pii_evaluate gold.jsonl`: how well personal data is found in texts in which it is marked."""

from __future__ import annotations

import json
from argparse import ArgumentParser, FileType
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from compliance.pii.analyzer import ENTITIES, MORE_ENTITIES, Analyzer
from compliance.pii.evaluation import Report, Score, evaluate
from compliance.pii.labelled import LineRefused, read_lines
from compliance.pii.whole_texts import find_in


class Command(BaseCommand):
    help = "Prints precision, recall, F1 and F2, by characters whatever they are called and by type. It prints no text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("gold", type=FileType("rb"), help='{"text", "spans": [{"type", "start", "end"}]} a line')
        parser.add_argument("--neutral", default="", help="types that count neither way, between commas")
        parser.add_argument("--all", action="store_true", help="look for places, organisations and URLs, too")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            texts = list(read_lines(options["gold"]))
        except LineRefused as refused:
            raise CommandError(str(refused)) from None
        entities = (*ENTITIES, *MORE_ENTITIES) if options["all"] else ENTITIES
        analyzer = Analyzer()
        found = [find_in(analyzer, labelled.text, entities) for labelled in texts]
        neutral = [name for name in options["neutral"].split(",") if name]
        report = evaluate(texts, found, neutral)
        self.stdout.write(json.dumps(_as_json(report)) if options["json"] else "\n".join(_table(report)))


def _table(report: Report) -> list[str]:
    head = f"{'':24}{'precision':>10}{'recall':>10}{'F1':>10}{'F2':>10}{'marked':>10}"
    rows = [_row("characters", report.characters)]
    rows += [_row(name, score) for name, score in sorted(report.types.items())]
    taken = sorted(report.confusion.items(), key=lambda one: -one[1])
    confused = [f"  {marked} as {found}: {count}" for (marked, found), count in taken if marked != found][:20]
    worst = [f"  line {line}: {missed} characters" for line, missed in report.worst]
    clean = f"{report.clean_with_findings} of {report.clean} texts without personal data have findings"
    return [head, *rows, "", clean, "", "taken for something else:", *confused, "", "most missed:", *worst]


def _row(name: str, score: Score) -> str:
    figures = (score.precision, score.recall, score.f(1), score.f(2))
    return f"{name:24}{''.join(f'{figure:10.3f}' for figure in figures)}{score.right + score.missed:10}"


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "texts": report.texts,
        "characters": _figures(report.characters),
        "types": {name: _figures(score) for name, score in sorted(report.types.items())},
        "confusion": [[*pair, count] for pair, count in sorted(report.confusion.items())],
        "clean": report.clean,
        "clean_with_findings": report.clean_with_findings,
        "worst": report.worst,
    }


def _figures(score: Score) -> dict[str, float]:
    return {
        "precision": round(score.precision, 4),
        "recall": round(score.recall, 4),
        "f1": round(score.f(1), 4),
        "f2": round(score.f(2), 4),
        "marked": score.right + score.missed,
    }
