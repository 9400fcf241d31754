"""The rule sets in the console: edited as drafts, activated by a second person, closed to everybody else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import Organisation, Role
from inference.models import RoutingRule, RoutingRuleSet
from tests.console import people

pytestmark = pytest.mark.django_db
RULE_SETS = "/admin/inference/routingruleset/"
EXPLAIN = f"{RULE_SETS}explain/"


@pytest.fixture
def acme() -> Organisation:
    people.deployment()
    return people.organisation("Acme")


@pytest.fixture
def enter(acme: Organisation) -> Callable[[str], Client]:
    def _enter(role: str = "superuser") -> Client:
        client = Client()
        client.force_login(people.superuser(acme) if role == "superuser" else people.member(acme, role))
        return client

    return _enter


def form(*rules: dict[str, Any], note: str = "a note", **fields: Any) -> dict[str, str]:
    """What the add page posts."""
    posted = {"note": note, "aliases": json.dumps(fields.get("aliases", {}))}
    posted |= {"rules-TOTAL_FORMS": str(len(rules)), "rules-INITIAL_FORMS": "0"}
    for number, rule in enumerate(rules):
        values = {"position": number, "name": f"rule {number}", "conditions": {}, "route": {}} | rule
        for name, value in values.items():
            text = value if isinstance(value, str) else json.dumps(value)
            posted[f"rules-{number}-{name}"] = text
    return posted


def add(client: Client, *rules: dict[str, Any]) -> RoutingRuleSet:
    assert client.post(f"{RULE_SETS}add/", form(*rules)).status_code == 302
    return RoutingRuleSet.objects.first()  # type: ignore[return-value]


def step(client: Client, rule_set: RoutingRuleSet, name: str) -> str:
    path = f"{RULE_SETS}{rule_set.pk}/{name}/"
    assert client.get(path, follow=True).status_code == 200
    page = client.post(path, follow=True)
    assert page.status_code == 200
    rule_set.refresh_from_db()
    return page.content.decode()


def test_a_version_goes_from_draft_to_force_through_two_people(enter: Callable[..., Client]) -> None:
    one, other = enter(), enter()
    rule_set = add(one, {"conditions": {"priorities": ["batch"]}, "route": {"strategy": "cheapest"}}, {})
    assert (rule_set.version, rule_set.state) == (1, "draft")
    assert [rule.as_rule().name for rule in rule_set.rules.all()] == ["rule 0", "rule 1"]
    step(one, rule_set, "propose")
    assert "Somebody else must approve" in step(one, rule_set, "activate")
    assert rule_set.state == "proposed"
    assert "is active" in step(other, rule_set, "activate")
    assert rule_set.state == "active"


def test_going_back_is_one_step(enter: Callable[..., Client]) -> None:
    Organisation.objects.update(four_eyes=False)
    client = enter()
    first, second = add(client, {"name": "old"}), None
    for rule_set in (first, second := add(client, {"name": "new"})):
        step(client, rule_set, "propose")
        step(client, rule_set, "activate")
    first.refresh_from_db()
    step(client, first, "revert")
    latest = RoutingRuleSet.objects.get(version=3)
    assert (latest.state, latest.rules.get().name, latest.reverts_to) == ("active", "old", first)
    second.refresh_from_db()
    assert second.state == "superseded"
    step(client, second, "edit_copy")
    assert RoutingRuleSet.objects.get(version=4).state == "draft"


def test_problems_are_shown_by_rule_and_field(enter: Callable[..., Client]) -> None:
    client = enter()
    rule_set = add(client, {"name": "astray", "route": {"candidates": [{"deployment": "nowhere"}]}})
    page = client.get(f"{RULE_SETS}{rule_set.pk}/change/").content.decode()
    assert re.search(r"<td>astray</td>\s*<td>candidates</td>\s*<td>There is no deployment nowhere", page)
    assert "astray, candidates: There is no deployment nowhere." in step(client, rule_set, "propose")
    assert rule_set.state == "draft"


@pytest.mark.parametrize(
    "rule",
    [
        {"conditions": "{not json"},
        {"conditions": {"colour": ["red"]}},
        {"route": '{"candidates": [{"deployment": "d", "weight": NaN}]}'},
        {"route": {"strategy": "luck"}},
        {"name": ""},
        {"position": "-1"},
    ],
)
def test_a_rule_that_is_none_is_refused_at_its_field(enter: Callable[..., Client], rule: dict[str, Any]) -> None:
    response = enter().post(f"{RULE_SETS}add/", form(rule))
    assert response.status_code == 200
    assert "errorlist" in response.content.decode() or "correct the error" in response.content.decode()
    assert not RoutingRule.objects.exists()


def test_two_rules_of_one_name_are_refused(enter: Callable[..., Client]) -> None:
    assert enter().post(f"{RULE_SETS}add/", form({"name": "same"}, {"name": "same"})).status_code == 200
    assert not RoutingRuleSet.objects.exists()


def test_an_empty_field_asks_for_nothing(enter: Callable[..., Client]) -> None:
    rule_set = add(enter(), {"conditions": "", "route": ""})
    assert (rule_set.rules.get().conditions, rule_set.rules.get().route) == ({}, {})


def test_what_was_proposed_is_edited_by_nobody(enter: Callable[..., Client]) -> None:
    client = enter()
    rule_set = add(client, {})
    step(client, rule_set, "propose")
    assert client.post(f"{RULE_SETS}{rule_set.pk}/change/", form({}, note="changed")).status_code == 403
    assert client.post(f"{RULE_SETS}{rule_set.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.get(f"{RULE_SETS}{rule_set.pk}/change/").status_code == 200
    client.post(RULE_SETS, {"action": "delete_selected", "_selected_action": str(rule_set.pk), "post": "yes"})
    rule_set.refresh_from_db()
    assert rule_set.note == "a note"
    step(client, rule_set, "withdraw")
    assert rule_set.state == "draft"


@pytest.mark.parametrize("role", [Role.ADMINISTRATOR, Role.OFFICER])
def test_rules_are_the_operators(enter: Callable[..., Client], role: str) -> None:
    rule_set = add(enter(), {})
    client = enter(role)
    for path in (RULE_SETS, EXPLAIN, f"{RULE_SETS}add/", f"{RULE_SETS}{rule_set.pk}/propose/"):
        assert client.get(path).status_code == 403, path
        assert client.post(path, {}).status_code == 403, path
    rule_set.refresh_from_db()
    assert rule_set.state == "draft"


@pytest.mark.parametrize(("language", "shown"), [("de", "de"), ("", "unknown")])
def test_the_page_shows_the_language_of_the_request(enter: Callable[..., Client], language: str, shown: str) -> None:
    asked = {"prompt_tokens": "500", "max_tokens": "50", "priority": "batch", "budget_state": "calm"}
    page = enter().get(EXPLAIN, asked | {"language": language}, follow=True).content.decode()
    assert f"<p>Language: {shown}</p>" in page


def test_the_page_explains_a_request_and_keeps_what_was_asked(enter: Callable[..., Client]) -> None:
    client = enter()
    assert "Prompt tokens" in client.get(EXPLAIN, follow=True).content.decode()
    page = client.get(EXPLAIN, {"prompt_tokens": "77", "tag": "<b>tag</b>"}, follow=True).content.decode()
    assert "no deployment of simulated could take it" in page
    assert "excluded, no ready worker" in page
    assert 'value="77"' in page
    assert "<b>tag</b>" not in page


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "nothing"}, "No such model"),
        ({"exchange": "00000000-0000-7000-8000-000000000000"}, "No explanation is recorded"),
        ({"prompt_tokens": "-5"}, "greater than or equal to 0"),
        ({"exchange": "x"}, "valid UUID"),
    ],
)
def test_the_page_says_what_it_cannot_explain(enter: Callable[..., Client], asked: dict[str, str], said: str) -> None:
    assert said in enter().get(EXPLAIN, asked, follow=True).content.decode()
