"""`manage.py pii_detect --input in.jsonl --output out.jsonl`: the personal data in each line's text."""

from __future__ import annotations

from argparse import ArgumentParser, FileType
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from compliance.pii.analyzer import ENTITIES, MORE_ENTITIES, Analyzer
from compliance.pii.findings import Finding
from compliance.pii.labelled import LineRefused, read_lines
from compliance.pii.recognizers.base import evidence
from compliance.pii.whole_texts import find_in


class Command(BaseCommand):
    help = 'Reads {"text"} a line and writes it with "spans": type, start, end, score, and what it was found by.'

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--input", type=FileType("rb"), required=True, help="- for standard input")
        parser.add_argument("--output", type=FileType("wb"), required=True, help="- for standard output")
        parser.add_argument("--all", action="store_true", help="what is never masked, too: places, organisations, URLs")

    def handle(self, *args: Any, **options: Any) -> None:
        entities = (*ENTITIES, *MORE_ENTITIES) if options["all"] else ENTITIES
        analyzer, output = Analyzer(), options["output"]
        try:
            for labelled in read_lines(options["input"]):
                found = find_in(analyzer, labelled.text, entities)
                line = {"text": labelled.text, "spans": [_span(finding) for finding in found]}
                output.write(msgspec.json.encode(line) + b"\n")
        except LineRefused as refused:
            raise CommandError(str(refused)) from None
        finally:
            output.flush()


def _span(finding: Finding) -> dict[str, Any]:
    place = {"type": finding.entity, "start": finding.start, "end": finding.end}
    return place | {"score": finding.score, "recognizer": evidence(finding)}
