"""Budgets, limits and the ledger in the console: what is shown adds up, and nobody changes what is not theirs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.test import Client

from console.accounts.models import APIKey, Member, Organisation, Role, Team
from inference.budget_models import Budget, Limit, Transfer
from tests.console import people

pytestmark = pytest.mark.django_db
LADDER = {"warn_at": "80", "degrade_at": "90", "refuse_batch_at": "95", "refuse_at": "100", "cheaper_model": ""}


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


@pytest.fixture
def team(acme: Organisation) -> Team:
    return Team.objects.create(organisation=acme, name="Support")


@pytest.fixture
def enter(acme: Organisation) -> Callable[[str], Client]:
    def _enter(role: str) -> Client:
        client = Client()
        client.force_login(people.superuser(acme) if role == "superuser" else people.member(acme, role))
        return client

    return _enter


def spend(of: Organisation, usd: str, **fields: object) -> Transfer:
    values = {"kind": "answer", "model": "m", "at": datetime.now(UTC)} | fields
    return Transfer.objects.create(organisation=of, deployment=people.deployment(), amount=Decimal(usd), **values)


def test_a_budget_shows_what_its_period_has_spent(
    acme: Organisation, team: Team, enter: Callable[[str], Client]
) -> None:
    whole = Budget.objects.create(organisation=acme, amount=Decimal(100))
    part = Budget.objects.create(organisation=acme, team=team, amount=Decimal(10), period="year")
    spend(acme, "25")
    spend(acme, "5", team_id=team.pk)
    spend(people.organisation("Other"), "70")
    spend(acme, "40", at=datetime(2020, 1, 1, tzinfo=UTC))

    client = enter("superuser")
    pages = [client.get(f"/admin/inference/budget/{row.pk}/change/").content.decode() for row in (whole, part)]

    assert "30.000000" in pages[0]
    assert "70.000000" in pages[0]
    assert "30.0" in pages[0]
    assert "5.000000" in pages[1]
    assert "50.0" in pages[1]
    assert "2020" not in client.get("/admin/inference/budget/").content.decode()


def test_an_administrator_sees_its_own_budgets_and_changes_none(
    acme: Organisation, enter: Callable[[str], Client]
) -> None:
    own = Budget.objects.create(organisation=acme, amount=Decimal(100))
    other = Budget.objects.create(organisation=people.organisation("Other"), amount=Decimal(77))
    client = enter(Role.ADMINISTRATOR)

    assert client.get(f"/admin/inference/budget/{own.pk}/change/").status_code == 200
    assert client.get(f"/admin/inference/budget/{other.pk}/change/").status_code == 302
    assert client.post(f"/admin/inference/budget/{own.pk}/change/", {"amount": "1", **LADDER}).status_code == 403
    own.refresh_from_db()
    assert own.amount == 100


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"amount": "-1"}, "amount"),
        ({"amount": "4000000.01"}, "amount"),
        ({"amount": "NaN"}, "amount"),
        ({"warn_at": "101"}, "warn_at"),
        ({"warn_at": "95"}, "degrade_at"),
        ({"refuse_at": "90"}, "refuse_at"),
    ],
)
def test_an_absurd_budget_is_refused_beside_its_field(
    acme: Organisation, enter: Callable[[str], Client], fields: dict[str, str], named: str
) -> None:
    form = {"organisation": str(acme.pk), "period": "month", "amount": "10", "is_enabled": "on", **LADDER, **fields}
    inline = {"crossings-TOTAL_FORMS": "0", "crossings-INITIAL_FORMS": "0"}
    response = enter("superuser").post("/admin/inference/budget/add/", form | inline)

    assert named in response.context["adminform"].form.errors
    assert not Budget.objects.exists()


def test_the_table_itself_refuses_what_the_form_would(acme: Organisation) -> None:
    for fields in ({"amount": Decimal(-1)}, {"amount": Decimal(5_000_000)}, {"warn_at": Decimal(99)}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Budget.objects.create(organisation=acme, **{"amount": Decimal(1), **fields})
    Budget.objects.create(organisation=acme, amount=Decimal(1))
    with pytest.raises(IntegrityError), transaction.atomic():
        Budget.objects.create(organisation=acme, amount=Decimal(2))


def test_a_scope_of_another_organisation_is_refused(acme: Organisation) -> None:
    foreign = Team.objects.create(organisation=people.organisation("Other"), name="Theirs")
    for row in (Budget(organisation=acme, team=foreign, amount=1), Limit(organisation=acme, team=foreign)):
        with pytest.raises(ValidationError, match="another organisation"):
            row.full_clean()
    row, _ = people.api_key(acme)
    with pytest.raises(ValidationError, match="one of team, API key and user"):
        Limit(organisation=acme, team=None, api_key=row, user=people.member(acme), requests_per_minute=1).full_clean()
    with pytest.raises(ValidationError, match="at least one"):
        Limit(organisation=acme).full_clean()
    with pytest.raises(ValidationError, match="Name the organisation"):
        Limit(requests_per_minute=5).full_clean()


def test_the_ledger_adds_up_to_nothing_and_refuses_every_change(acme: Organisation) -> None:
    for usd in ("0", "0.000000000001", "12.5"):
        row = spend(acme, usd)
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(amount), count(*) FROM inference_posting")
        assert cursor.fetchone() == (Decimal(0), 6)
    for change in (
        lambda: Transfer.objects.filter(pk=row.pk).update(amount=Decimal(0)),
        lambda: Transfer.objects.filter(pk=row.pk).delete(),
        lambda: spend(acme, "-1"),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            change()


def test_the_ledger_cannot_be_emptied() -> None:
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE inference_transfer")


def test_an_administrator_puts_keys_and_members_into_teams_of_its_own(
    acme: Organisation, team: Team, enter: Callable[[str], Client]
) -> None:
    foreign = Team.objects.create(organisation=people.organisation("Other"), name="Theirs")
    client = enter(Role.ADMINISTRATOR)
    form = {"organisation": str(acme.pk), "name": "bot"}

    refused = client.post("/admin/accounts/apikey/add/", form | {"team": str(foreign.pk)})
    assert "team" in refused.context["adminform"].form.errors
    assert client.post("/admin/accounts/apikey/add/", form | {"team": str(team.pk)}).status_code == 200
    assert APIKey.objects.get(name="bot").team == team

    user = people.member(acme)
    member = Member.objects.get(user=user)
    inline = {"member-TOTAL_FORMS": "1", "member-INITIAL_FORMS": "1", "member-0-id": str(member.pk)}
    place = {"member-0-user": str(user.pk), "member-0-organisation": str(acme.pk), "member-0-role": Role.END_USER}
    client.post(
        f"/admin/accounts/user/{user.pk}/change/",
        {"username": user.username, "is_active": "on", **inline, **place, "member-0-team": str(team.pk)},
    )
    member.refresh_from_db()
    assert member.team == team
