"""The fit of a model version: by the command and on its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from auditlog.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client

from console.accounts.models import Role
from inference.actions.adopt_preset import adopt_preset
from inference.fitting.models import Accelerator
from inference.models import ModelVersion
from inference.presets import PRESETS
from tests.console import people

pytestmark = pytest.mark.django_db


@pytest.fixture
def large() -> ModelVersion:
    return adopt_preset(PRESETS["qwen3.8-2.4t-a95b-nvfp4"])


@pytest.fixture
def small() -> ModelVersion:
    return adopt_preset(PRESETS["small-instruct"])


@pytest.fixture
def enter() -> Callable[[str], Client]:
    acme = people.organisation("Acme")

    def _enter(role: str = "superuser") -> Client:
        client = Client()
        client.force_login(people.superuser(acme) if role == "superuser" else people.member(acme, role))
        return client

    return _enter


def check(version: ModelVersion, **options: Any) -> str:
    out = StringIO()
    call_command("fit_check", version.name, version.version, stdout=out, **options)
    return out.getvalue()


def line_of(name: str, said: str) -> str:
    return next(line for line in said.splitlines() if line.startswith(name))


def cells(name: str, page: str) -> list[str]:
    row = re.search(rf'<th scope="row">{name}</th>(.*?)</tr>', page, re.S)
    assert row is not None, name
    return re.findall(r"<td>(.*?)</td>", row[1])


def test_the_large_preset_does_not_fit_on_eight_a100_and_the_command_says_on_what(large: ModelVersion) -> None:
    said = check(large)
    assert "1,350 GB (4.5 bits a weight" in line_of("Weights", said)
    assert "not known: what follows is without KV cache" in line_of("KV cache", said)
    a100 = line_of("A100 80 GB", said)
    assert re.split(r"\s{2,}", a100)[1:3] == ["24 (3 nodes of 8)", "does not fit, 544 GB usable"]
    assert re.split(r"\s{2,}", a100)[-1] == "weight-only"
    b300 = re.split(r"\s{2,}", line_of("B300", said))
    assert b300[1:] == ["8", "fits, 1,958 GB usable", "46,720", "0.83 ms", "native"]
    assert "Prices are assumptions, set 2026-12-01" in said


def test_the_cache_is_that_of_the_answers_planned_or_asked_for(small: ModelVersion) -> None:
    assert "618 GB (147,456 bytes a token, 32,768 tokens, 128 at once)" in check(small)
    assert "0.6 GB (147,456 bytes a token, 1,000 tokens, 4 at once)" in check(small, tokens="1000", concurrency="4")


def test_a_price_that_is_changed_counts_and_puts_the_cheapest_first(large: ModelVersion) -> None:
    Accelerator.objects.filter(name="H200").update(usd_per_hour="0.0100", priced_on="2027-01-02")
    said = check(large)
    first = said[said.index("Accelerator") :].splitlines()[1]
    assert re.split(r"\s{2,}", first)[:4] == ["H200", "16 (2 nodes of 8)", "does not fit, 959 GB usable", "117"]
    assert "set 2026-12-01 to 2027-01-02" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": "0"}, "--concurrency: Ensure this value is greater than or equal to 1"),
        ({"concurrency": "many"}, "--concurrency: Enter a whole number"),
        ({"tokens": "9" * 30}, "--tokens: Ensure this value is less than or equal to"),
    ],
)
def test_an_option_that_is_none_is_refused_by_name(small: ModelVersion, options: dict[str, str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        check(small, **options)


def test_what_is_not_known_is_said(small: ModelVersion) -> None:
    with pytest.raises(CommandError, match="no such model version"):
        call_command("fit_check", small.name, "none")
    ModelVersion.objects.update(parameters_active=None)
    small.refresh_from_db()
    assert "the active ones are not known" in check(small)
    ModelVersion.objects.update(parameters_total=None)
    with pytest.raises(CommandError, match="parameters are not known"):
        check(small)


@pytest.mark.parametrize("role", ["superuser", Role.ADMINISTRATOR, Role.OFFICER])
def test_the_page_is_linked_from_the_version_for_all_who_may_see_it(
    enter: Callable[..., Client], large: ModelVersion, role: str
) -> None:
    client, path = enter(role), f"/admin/inference/modelversion/{large.pk}/"
    assert f"{path}fit/" in client.get(f"{path}change/").content.decode()
    page = client.get(f"{path}fit/").content.decode()
    assert cells("A100 80 GB", page)[:2] == ["24 (3 nodes of 8)", "does not fit, 544 GB usable"]
    assert cells("B300", page)[:2] == ["8", "fits, 1,958 GB usable"]


def test_the_page_keeps_what_was_asked_and_names_a_field_that_is_wrong(
    enter: Callable[..., Client], small: ModelVersion
) -> None:
    path = f"/admin/inference/modelversion/{small.pk}/fit/"
    page = enter().get(path, {"concurrency": "7"}).content.decode()
    assert 'value="7"' in page
    assert "7 at once" in page
    wrong = enter().get(path, {"tokens": "-1"}).content.decode()
    assert "greater than or equal to 1" in wrong
    assert "<table" not in wrong
    ModelVersion.objects.update(parameters_active=None, parameters_total=None)
    assert "parameters are not known" in enter().get(path).content.decode()


def test_who_may_not_see_versions_sees_no_fit(enter: Callable[..., Client], small: ModelVersion) -> None:
    path = f"/admin/inference/modelversion/{small.pk}/fit/"
    assert enter(Role.END_USER).get(path).status_code == 302
    assert enter().get(path.replace(str(small.pk), "0" * 8)).status_code == 403


def test_prices_are_the_operators(enter: Callable[..., Client]) -> None:
    row = Accelerator.objects.get(name="L4")
    path = f"/admin/inference/accelerator/{row.pk}/change/"
    form = {"name": "L4", "memory_gb": "24", "bandwidth_gb_s": "300", "source": row.source, "fp8_native": "on"}
    form |= {"usd_per_hour": "0.55", "priced_on": "2027-03-04"}
    assert enter(Role.ADMINISTRATOR).get(path).status_code == 200
    assert enter(Role.ADMINISTRATOR).post(path, form).status_code == 403
    assert enter().post(path, form | {"usd_per_hour": "-1"}).status_code == 200
    row.refresh_from_db()
    assert row.usd_per_hour > 0.55
    assert enter().post(path, form).status_code == 302
    row.refresh_from_db()
    assert str(row.usd_per_hour) == "0.5500"


@pytest.mark.parametrize("fields", [{"memory_gb": 0}, {"bandwidth_gb_s": 0}, {"usd_per_hour": "-0.0001"}])
def test_the_database_refuses_figures_that_are_none(fields: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Accelerator.objects.filter(name="L4").update(**fields)


def test_every_accelerator_names_where_its_figures_are_from() -> None:
    rows = Accelerator.objects.all()
    assert {row.name for row in rows} == {"A100 40 GB", "A100 80 GB", "L4", "L40S", "H100", "H200", "B200", "B300"}
    assert all(row.source.startswith("https://") for row in rows)
    for row in rows:
        row.full_clean()


def test_a_change_of_price_is_in_the_history() -> None:
    row = Accelerator.objects.get(name="H100")
    row.usd_per_hour = row.usd_per_hour + 1
    row.save()
    assert LogEntry.objects.get_for_object(row).filter(action=LogEntry.Action.UPDATE).exists()
