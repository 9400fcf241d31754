"""`manage.py worker_token`: the token is printed once, and that it was made is kept."""

from __future__ import annotations

import pytest
from auditlog.models import LogEntry
from django.core.management import CommandError, call_command

from compliance.audit.models import Entry, EntryKind
from console.accounts.models import ConfigurationChange
from gpu_workers.enrolment import Enrolment, read_token
from gpu_workers.sealing import fingerprint
from inference.models import Deployment, Lifecycle, ModelVersion

pytestmark = pytest.mark.django_db

KEY = bytes(range(32))


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("BURSAR_SEAL_KEY", KEY.hex())
    version = ModelVersion.objects.create(name="llama", version="1", context_length=4096, lifecycle=Lifecycle.LIVE)
    return Deployment.objects.create(slug="eu-llama", model_version=version, engine="vllm")


def test_the_token_names_the_deployment_and_is_alone_on_standard_output(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("worker_token", "eu-llama")
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    assert read_token(printed.out) == Enrolment(KEY, "eu-llama")
    assert printed.out.strip() not in printed.err


def test_that_it_was_made_is_in_the_record_and_in_the_history(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("worker_token", "eu-llama")
    token = capsys.readouterr().out.strip()
    facts = Entry.objects.get(kind=EntryKind.CONFIGURATION, facts__about="enrolment").facts
    assert facts == {
        "about": "enrolment",
        "event": "worker_token_made",
        "deployment": "eu-llama",
        "seal": fingerprint(KEY),
    }
    change = ConfigurationChange.objects.get(action=LogEntry.Action.ACCESS, object_pk=str(deployment.pk))
    assert "worker_token" in change.changes_dict
    assert fingerprint(KEY) in str(change.changes_display_dict)
    for kept in (str(facts), str(change.changes)):
        assert token not in kept
        assert KEY.hex() not in kept


def test_an_unknown_deployment_is_refused_with_those_there_are(deployment: Deployment) -> None:
    with pytest.raises(CommandError, match=r"There are: .*eu-llama"):
        call_command("worker_token", "elsewhere")
    assert not Entry.objects.filter(facts__about="enrolment").exists()


def test_without_a_seal_key_nothing_is_made(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BURSAR_SEAL_KEY")
    with pytest.raises(CommandError, match="BURSAR_SEAL_KEY"):
        call_command("worker_token", "eu-llama")
    assert not Entry.objects.filter(facts__about="enrolment").exists()
