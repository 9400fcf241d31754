"""The console's home and sidebar: what an administrator needs, in the product's words, and no link that is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client

from compliance.audit.models import Entry
from console.accounts.models import Organisation, Role, Team
from console.chat.models import Conversation
from gpu_workers.identifiers import uuid7
from inference.budget_models import Budget, Limit, Transfer
from inference.evaluation.models import EvaluationPrompt, EvaluationRun, EvaluationSet
from inference.rollups import roll_up
from tests.console import people

pytestmark = pytest.mark.django_db

HOME = "/admin/"
FOR_ROLES = [
    *("Organisations", "Teams", "Users", "API keys"),
    *("Budgets", "Limits", "Months", "Ledger"),
    *("Model versions", "Deployments", "Accelerators", "Evaluation runs"),
    *("Conversations", "Exchanges", "Refusals"),
    "Entries",
]
FOR_SUPERUSERS = [
    *(*FOR_ROLES[:11], "Scaling", "Scaling steps", "Engine events"),
    *("Evaluation sets", "Evaluation runs", "Routing rules"),
    *(*FOR_ROLES[12:], "Change history", "Periodic tasks"),
]
STOCK = "Solar|Clocked|Crontabs|Intervals|Log entries|Groups|Accounts|Audit log|Inference"
RAW = re.compile(r"\b(Id|Pk|Api|Ms|Ttft)\b|^Is\b|\b(at|id|pk|ms)$|_")


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


@pytest.fixture
def enter(acme: Organisation) -> Callable[[str], Client]:
    def _enter(role: str) -> Client:
        client = Client()
        client.force_login(people.superuser(acme) if role == "superuser" else people.member(acme, role))
        return client

    return _enter


@pytest.fixture
def traffic(acme: Organisation) -> None:
    """A row of everything that the console lists."""
    user = people.member(acme)
    conversation = Conversation.objects.create(organisation=acme, user=user)
    exchange = people.exchange(acme, people.deployment(), user=user, conversation_id=conversation.pk)
    people.api_key(acme)
    evaluated = EvaluationSet.objects.create(model_version=exchange.deployment.model_version)
    EvaluationPrompt.objects.create(evaluation_set=evaluated, prompt="hello", check_of_answer={"kind": "refusal"})
    EvaluationRun.objects.create(model_version=evaluated.model_version, state="finished", passed=1, total=1)
    team = Team.objects.create(organisation=acme, name="Support")
    Budget.objects.create(organisation=acme, team=team, amount=10)
    Limit.objects.create(organisation=acme, requests_per_minute=10)
    Transfer.objects.create(
        organisation=acme, deployment=exchange.deployment, kind="answer", model="m", amount=1, at=exchange.opened_at
    )
    roll_up(exchange.opened_at)
    facts = {"error_code": "model_not_found", "param": "model", "channel": "http", "caller": "unknown"}
    for kind, about in (("intent", exchange.pk), ("refusal", uuid7())):
        Entry.objects.create(organisation_id=acme.pk, exchange_id=about, kind=kind, facts=facts)


def links(page: str) -> list[str]:
    """The addresses inside the console that a page leads to."""
    found = dict.fromkeys(unescape(link) for link in re.findall(r'href="(/admin/[^"#]*|\?[^"]*)"', page))
    return [link for link in found if link.startswith("/")]


@pytest.mark.parametrize(
    ("role", "expected"),
    [(Role.OFFICER, FOR_ROLES), (Role.ADMINISTRATOR, FOR_ROLES), ("superuser", FOR_SUPERUSERS)],
)
def test_home_and_sidebar_list_the_sections_in_order(
    enter: Callable[[str], Client], role: str, expected: list[str]
) -> None:
    page = enter(role).get(HOME).content.decode()
    sidebar, home = page.split('<div class="home">')
    assert re.findall(r"<strong>(.*?)</strong>", home) == expected
    assert re.findall(r"<li>\s*<a [^>]*>.*?<span>(.*?)</span>", sidebar, re.DOTALL) == expected
    assert not re.search(STOCK, page)


def test_an_applications_own_page_is_the_home_page(enter: Callable[[str], Client]) -> None:
    page = enter("superuser").get("/admin/inference/").content.decode()
    assert "Change history" in page
    assert not re.search(STOCK, page)


def test_a_page_says_where_one_is_without_applications_and_leaves_names_alone(enter: Callable[[str], Client]) -> None:
    page = enter("superuser").get(f"/admin/inference/deployment/{people.deployment().pk}/change/").content.decode()
    assert re.findall(r'class="crumb">(.*?)</a>', page) == ["Deployments", "simulated-local"]


@pytest.mark.usefixtures("traffic")
@pytest.mark.parametrize("role", [Role.OFFICER, Role.ADMINISTRATOR, "superuser"])
def test_no_link_is_refused_or_leads_nowhere(enter: Callable[[str], Client], role: str) -> None:
    client, seen, found = enter(role), set[str](), [HOME]
    while found:
        path = found.pop()
        if path in seen or "/logout/" in path:
            continue
        seen.add(path)
        answered = client.get(path)
        assert answered.status_code == 200, path
        if answered["Content-Type"].startswith("text/html"):
            found += links(answered.content.decode())
    assert len([path for path in seen if path.endswith("/change/")]) >= len(FOR_ROLES) - 1


@pytest.mark.usefixtures("traffic")
def test_no_label_is_the_raw_name_of_a_field(enter: Callable[[str], Client]) -> None:
    client = enter("superuser")
    lists = [path for path in links(client.get(HOME).content.decode()) if path.count("/") == 4]
    pages = [client.get(path).content.decode() for path in lists]
    details = [path for page in pages for path in links(page) if path.endswith(("/change/", "/add/"))]
    pages += [client.get(path).content.decode() for path in details]
    labels = {label for page in pages for label in re.findall(r'data-label="(.*?)"|<label[^>]*>\s*([^<]*)', page)}
    raw = {text.strip() for pair in labels for text in pair if RAW.search(text.strip())}
    assert raw == set()


def test_a_refusal_shows_with_what_and_why_and_leads_to_no_exchange(
    enter: Callable[[str], Client], acme: Organisation, traffic: None
) -> None:
    refusal = Entry.objects.get(kind="refusal")
    client = enter(Role.OFFICER)
    assert "model_not_found" in client.get("/admin/audit/refusal/").content.decode()
    page = client.get(f"/admin/audit/refusal/{refusal.pk}/change/").content.decode()
    assert str(refusal.exchange_id) in page
    assert f"/admin/inference/exchange/{refusal.exchange_id}" not in page
    intent = Entry.objects.get(kind="intent")
    assert str(intent.pk) not in client.get("/admin/audit/refusal/").content.decode()


@pytest.mark.usefixtures("traffic")
def test_times_are_shown_to_the_second_with_their_zone(enter: Callable[[str], Client]) -> None:
    client = enter("superuser")
    lists = [path for path in links(client.get(HOME).content.decode()) if path.count("/") == 4]
    pages = {path: client.get(path).content.decode() for path in lists}
    for page in list(pages.values()):
        pages |= {path: client.get(path).content.decode() for path in links(page) if path.endswith("/change/")}
    for path, page in pages.items():
        assert not re.search(r"[ap]\.m\.|\d\d:\d\d\+00:00|T\d\d:\d\d:\d\d", page), path
    for path in ("inference/exchange", "audit/entry", "accounts/apikey", "chat/conversation"):
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", pages[f"/admin/{path}/"]), path
