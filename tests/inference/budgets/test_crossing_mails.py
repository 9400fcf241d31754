"""Steps that a budget reached are told by mail: once each, to who is responsible, until a server takes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from console.accounts.models import Organisation, Role
from console.settings.mail import MailServer, mail_server
from inference.budget_models import Budget, BudgetCrossing, Transfer
from inference.crossing_mails import MAX_TRIES, send_crossing_mails
from tests.at_once import at_once
from tests.console import people
from tests.inference.budgets.mailbox import Mailbox, open_mailbox

NOW = datetime.now(UTC)
PERIOD = f"{NOW:%Y-%m}"


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    with open_mailbox() as box:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", box.port
        settings.PUBLIC_URL = "https://bursar.example/"
        yield box


@pytest.fixture
def acme(db: None) -> Organisation:
    return people.organisation("Acme")


@pytest.fixture
def budget(acme: Organisation) -> Budget:
    people.member(acme, Role.ADMINISTRATOR, email="ada@acme.example")
    people.member(acme, Role.ADMINISTRATOR, email="gone@acme.example", is_active=False)
    people.member(acme, Role.END_USER, email="user@acme.example")
    people.member(people.organisation("Other"), Role.ADMINISTRATOR, email="other@other.example")
    return Budget.objects.create(organisation=acme, amount=Decimal("100.00"))


def cross(budget: Budget, *stages: int, at: datetime = NOW) -> None:
    for stage in stages:
        BudgetCrossing.objects.create(budget=budget, period=PERIOD, stage=stage, crossed_at=at)


def test_it_says_what_was_reached_what_follows_and_where_to_look(budget: Budget, mailbox: Mailbox) -> None:
    deployment = people.deployment()
    spent = {"kind": "answer", "deployment": deployment, "model": "m", "at": NOW, "amount": Decimal("91.505")}
    Transfer.objects.create(organisation=budget.organisation, **spent)
    cross(budget, 1, 2)
    assert send_crossing_mails(NOW) == 1

    [(address, mail)] = mailbox.mails
    assert address == "ada@acme.example"
    assert mail["Subject"] == "[Bursar] Acme, month: cheaper model"
    text = mail.get_content()
    assert "has reached 90 % of 100.00 USD" in text
    assert "the budget's cheaper model answers" in text
    assert "Spent: 91.50 USD of 100.00 USD" in text
    assert f"https://bursar.example/admin/inference/budget/{budget.pk}/change/" in text

    assert send_crossing_mails(NOW + timedelta(hours=1)) == 0
    cross(budget, 4)
    assert send_crossing_mails(NOW + timedelta(hours=1)) == 1
    assert "every request is refused" in mailbox.mails[-1][1].get_content()


def test_the_platforms_is_told_to_those_who_see_everything(acme: Organisation, mailbox: Mailbox) -> None:
    people.member(acme, Role.ADMINISTRATOR, email="root@acme.example", is_superuser=True)
    people.member(acme, Role.ADMINISTRATOR, email="ada@acme.example")
    cross(Budget.objects.create(amount=Decimal(50_000)), 3)
    assert send_crossing_mails(NOW) == 1
    assert [address for address, _ in mailbox.mails] == ["root@acme.example"]


def test_a_name_with_a_line_in_it_adds_no_header(budget: Budget, mailbox: Mailbox) -> None:
    Organisation.objects.filter(pk=budget.organisation_id).update(name="Acme\r\nBcc: evil@example.com")
    cross(budget, 1)
    assert send_crossing_mails(NOW) == 1
    [(address, mail)] = mailbox.mails
    assert (address, mail["Bcc"]) == ("ada@acme.example", None)


def test_a_server_that_refuses_is_tried_again_later_and_given_up_at_last(budget: Budget, mailbox: Mailbox) -> None:
    mailbox.refuses_with = b"550 ada@acme.example is not wanted"
    cross(budget, 1)
    moment, tried = NOW, []
    for _ in range(400):
        before = BudgetCrossing.objects.get().tries
        send_crossing_mails(moment)
        if BudgetCrossing.objects.get().tries > before:
            tried.append((moment - NOW).total_seconds())
        moment += timedelta(seconds=15)
    assert tried[:4] == [0, 15, 45, 105]
    crossing = BudgetCrossing.objects.get()
    assert crossing.notified_at is None
    assert "acme" not in crossing.notice_error
    assert crossing.tries <= MAX_TRIES

    mailbox.refuses_with = None
    assert send_crossing_mails(NOW + timedelta(hours=3)) == 1
    crossing.refresh_from_db()
    assert crossing.notified_at is not None


def test_where_no_server_is_or_nobody_has_an_address_nothing_is_lost(
    acme: Organisation, mailbox: Mailbox, settings: Any
) -> None:
    budget = Budget.objects.create(organisation=acme, amount=Decimal(1))
    cross(budget, 1)
    settings.EMAIL_HOST = ""
    assert send_crossing_mails(NOW) == 0
    settings.EMAIL_HOST = "127.0.0.1"
    assert send_crossing_mails(NOW) == 0
    assert BudgetCrossing.objects.get().notice_error == "no_recipient"

    people.member(acme, Role.ADMINISTRATOR, email="late@acme.example")
    assert send_crossing_mails(NOW + timedelta(minutes=1)) == 1
    assert [address for address, _ in mailbox.mails] == ["late@acme.example"]


def test_history_is_no_news(budget: Budget, mailbox: Mailbox) -> None:
    cross(budget, 1, at=NOW - timedelta(hours=25))
    assert send_crossing_mails(NOW) == 0


def test_the_budgets_page_says_whether_it_was_told(budget: Budget, mailbox: Mailbox, settings: Any) -> None:
    client = Client()
    client.force_login(people.superuser(budget.organisation))
    cross(budget, 1)
    url = f"/admin/inference/budget/{budget.pk}/change/"
    assert "not yet" in client.get(url).content.decode()
    mailbox.refuses_with = b"451 later"
    send_crossing_mails(NOW)
    assert "not yet: SMTPRecipientsRefused (it is tried again)" in client.get(url).content.decode()
    settings.EMAIL_HOST = ""
    assert "no mail server is set" in client.get(url).content.decode()


@pytest.mark.usefixtures("on_committed_database")
def test_several_senders_send_one_mail(settings: Any) -> None:
    with open_mailbox() as box:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", box.port
        acme = people.organisation()
        people.member(acme, Role.ADMINISTRATOR, email="ada@acme.example")
        cross(Budget.objects.create(organisation=acme, amount=Decimal(1)), 1, 2, 3)
        assert sum(at_once(lambda: send_crossing_mails(NOW))) == 1
        assert len(box.mails) == 1


def test_a_url_says_how_the_server_is_spoken_to() -> None:
    assert mail_server("") == MailServer()
    far = mail_server("smtp://bursar:p%40ss@mail.example")
    assert far == MailServer("mail.example", 587, "bursar", "p@ss", starttls=True)
    assert mail_server("smtps://mail.example").port == 465
    assert not mail_server("smtp://127.0.0.1:25").starttls


@pytest.mark.parametrize("url", ["mail.example", "http://x", "smtp://", "smtp://h:port", "smtp://secret@h:99999"])
def test_a_url_that_makes_no_sense_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        mail_server(url)
    assert "secret" not in str(refused.value)
