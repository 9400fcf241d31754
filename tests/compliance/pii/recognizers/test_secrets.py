"""Secrets by their form and by what they are called; what only talks of secrets is left alone.

The keys are made up here, piece by piece, so that nothing in this file is one.
"""

from __future__ import annotations

import pytest

from tests.compliance.pii.recognizers.test_recognizers import found

RANDOM = "q7Rz2mX9vKp4Lw8Tn3Bf6Hs1Yd5Gc0JaUeIoWxZk"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-" + RANDOM[:32],
        "sk-" + "proj-" + RANDOM,
        "bsk_" + (RANDOM + "abc")[:43],
        "ghp" + "_" + RANDOM[:36],
        "AKIA" + "Q7RZ2MX9VKP4LW8T",
        "AIza" + RANDOM[:35],
        "hf" + "_" + RANDOM[:34],
        "sk_" + "live_" + RANDOM[:24],
        "xox" + "b-123456789012-" + RANDOM[:24],
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + RANDOM[:30],
        "-----BEGIN " + "PRIVATE KEY-----\n" + RANDOM + "\n-----END " + "PRIVATE KEY-----",
    ],
)
@pytest.mark.parametrize("text", ["{}", "use {}", 'key="{}"', "it is {}, thanks"])
def test_a_key_is_found_whole_by_its_form(secret: str, text: str) -> None:
    assert ("SECRET", secret) in found(text.format(secret))


def test_a_private_key_that_was_cut_off_is_one_as_far_as_it_goes() -> None:
    cut = "-----BEGIN RSA " + "PRIVATE KEY-----\n" + RANDOM + RANDOM
    assert found(f"here: {cut}") == [("SECRET", cut)]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("my password is hunter2!", "hunter2"),
        ("password: Tr0ub4dor&3", "Tr0ub4dor&3"),
        ("PIN 4821", "4821"),
        ("cvv: 123", "123"),
        ("token=" + RANDOM[:20], RANDOM[:20]),
        ("postgresql://bursar:s3cr3t-pw@db:5432/x", "s3cr3t-pw"),
    ],
)
def test_a_value_that_is_called_a_secret_is_one(text: str, secret: str) -> None:
    assert ("SECRET", secret) in found(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("customer number 4711-0815", "4711-0815"), ("policy no. AB-123456", "AB-123456"), ("member id M99812", "M99812")],
)
def test_customers_and_policies_are_found_by_their_words(text: str, number: str) -> None:
    assert ("CUSTOMER_NUMBER", number) in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "I forgot my password and need a new one.",
        "The token is invalid, please sign in again.",
        "How do I rotate an API key every 90 days?",
        "The secret to good savings is patience.",
        "Is the password case-sensitive?",
        "Every customer in 2024 got 3 statements.",
        "Our policy of 2019 still holds.",
        "sk-learn and hf_hub are libraries.",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b fixes it",
        "The PIN must have four digits.",
    ],
)
def test_what_talks_of_secrets_is_none(text: str) -> None:
    assert found(text) == []
