"""A request described by hand, to be explained: the same fields for the admin page and for the command."""

from __future__ import annotations

from typing import Any, get_args

from django import forms
from django.utils import timezone

from gpu_workers.identifiers import uuid7
from inference.events import Priority
from inference.routing.facts import RequestFacts
from inference.routing.rules import BUDGET_STATES

TEXTS = ("model", "organisation", "team", "key", "role", "tag", "residency", "previous_deployment")


class RequestForm(forms.Form):
    """`exchange` alone asks for what was recorded; everything else describes a request that is sent nowhere."""

    exchange = forms.UUIDField(required=False, help_text="An exchange's id: shows what was decided for it then.")
    model = forms.CharField(required=False, help_text="Or an alias. Empty: the default model.")
    prompt_tokens = forms.IntegerField(min_value=0, initial=500)
    max_tokens = forms.IntegerField(min_value=1, initial=256)
    priority = forms.ChoiceField(choices=[(name, name.capitalize()) for name in get_args(Priority)])
    organisation = forms.CharField(required=False, help_text="Its id, as rules name it.")
    team = forms.CharField(required=False)
    key = forms.CharField(required=False, help_text="The API key's id.")
    role = forms.CharField(required=False)
    tag = forms.CharField(required=False)
    language = forms.RegexField(
        r"\A[a-z]{2}\Z", required=False, help_text="Two letters (ISO 639-1), such as de. Empty: could not be told."
    )
    residency = forms.CharField(required=False)
    findings = forms.CharField(required=False, help_text="Entity types found in the prompt, with commas between.")
    budget_state = forms.ChoiceField(choices=[(name, name.replace("_", " ")) for name in BUDGET_STATES])
    at = forms.DateTimeField(required=False, help_text="In UTC. Empty: now.")
    previous_deployment = forms.CharField(required=False, help_text="Where the conversation's last answer came from.")

    @classmethod
    def given(cls, values: dict[str, str]) -> RequestForm:
        """A form with these values, and with the usual ones for the rest."""
        usual: dict[str, Any] = {"priority": "interactive", "budget_state": "calm"}
        usual |= {name: field.initial for name, field in cls.base_fields.items() if field.initial is not None}
        return cls(usual | values)

    def facts(self) -> RequestFacts:
        """Of a valid form. Each call is another exchange: chance falls anew."""
        given = self.cleaned_data
        texts: dict[str, Any] = {name: given[name] or None for name in TEXTS}
        findings = frozenset(name.strip() for name in given["findings"].split(",") if name.strip())
        return RequestFacts(
            exchange_id=uuid7(),
            at=given["at"] or timezone.now(),
            prompt_tokens=given["prompt_tokens"],
            max_tokens=given["max_tokens"],
            priority=given["priority"],
            language=given["language"],
            findings=findings,
            budget_state=given["budget_state"],
            **texts,
        )
