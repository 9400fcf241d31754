"""What may stand in the catalog, whoever writes it: sources, checksums, engine arguments, prices."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from inference.models import ModelVersion

pytestmark = pytest.mark.django_db


def version(**fields: Any) -> ModelVersion:
    return ModelVersion(**{"name": "m", "version": "1", "context_length": 4096} | fields)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("path", "/models/small"),
        ("hub", "Qwen/Qwen3-0.6B@main"),
        ("s3", "s3://weights.example/small/v1/"),
        ("sagemaker", "arn:aws:sagemaker:eu-central-1:123456789012:model-package/small/1"),
        ("", ""),
    ],
)
def test_each_kind_of_source_is_taken(kind: str, source: str) -> None:
    version(source_kind=kind, source=source).full_clean()


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("path", "models/small"),
        ("path", "/models/../etc"),
        ("path", ""),
        ("hub", "small"),
        ("hub", "a/b/c"),
        ("hub", "https://hub/a"),
        ("s3", "s3://bucket"),
        ("s3", "s3://bucket/key?X-Amz-Signature=abc"),
        ("s3", "s3://KEY:SECRET@bucket/key"),
        ("sagemaker", "arn:aws:sagemaker:eu-central-1:1:model-package/small"),
        ("", "/models/small"),
        ("ftp", "ftp://x"),
    ],
)
def test_a_source_that_is_none_of_its_kind_is_refused(kind: str, source: str) -> None:
    with pytest.raises(ValidationError) as caught:
        version(source_kind=kind, source=source).full_clean()
    assert {"source", "source_kind"} & set(caught.value.message_dict)


def test_a_checksum_is_kept_in_small_letters() -> None:
    one = version(checksum="AB" * 32)
    one.full_clean()
    assert one.checksum == "ab" * 32


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-num-batched-tokens", "8192", "--tokenizer=/models/small", "--skip-tokenizer-init"],
        ["--override-generation-config", '{"eos_token_id": 2}', "--chat-template", "/etc/templates/key.jinja"],
        [],
        None,
    ],
)
def test_ordinary_engine_arguments_are_taken(arguments: Any) -> None:
    version(engine_arguments=arguments).full_clean()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", "abc"],
        ["--api-key=abc"],
        ["--hf-token", "abc"],
        ["--hf_token=abc"],
        ["--x", "hf_abcdefgh"],
        ["--x", "AKIAABCDEFGH"],
        ["--header", "Bearer abc"],
        ["HF_TOKEN=abc"],
        ["--url", "http://user:pass@host"],
        ["--extra", '{"api_key": "abc"}'],
    ],
)
def test_what_looks_like_a_secret_is_refused_and_not_repeated(arguments: list[str]) -> None:
    with pytest.raises(ValidationError, match="looks like a secret") as caught:
        version(engine_arguments=arguments).full_clean()
    assert "abc" not in str(caught.value).lower()


@pytest.mark.parametrize(
    "arguments",
    [["--host", "10.0.0.1"], ["--ho=10.0.0.1"], ["--UDS", "/x"], ["--served_model_name=x"], ["--middleware", "a.b"]],
)
def test_what_the_host_says_itself_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ValidationError, match="Argument 1 says what the worker's host says itself"):
        version(engine_arguments=arguments).full_clean()


@pytest.mark.parametrize("arguments", [["--model-impl", "auto"], ["--tensor-parallel-size", "8"], ["-tp", "2"]])
def test_other_arguments_are_taken(arguments: list[str]) -> None:
    version(engine_arguments=arguments).full_clean()


@pytest.mark.parametrize("arguments", ["--x", {"a": 1}, [1], [""], ["a\n"], ["a" * 501], ["a"] * 65, [["a"]]])
def test_what_is_no_list_of_short_words_is_refused(arguments: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        version(engine_arguments=arguments).full_clean()
    assert "engine_arguments" in caught.value.message_dict


@pytest.mark.parametrize(
    "fields",
    [
        {"input_price": "-0.000001"},
        {"output_price": "10000.1"},
        {"cached_price": "-1"},
        {"checksum": "AB" * 32},
        {"parameters_active": "1"},
        {"parameters_total": "1", "parameters_active": "2"},
        {"context_length": 63},
    ],
)
def test_the_database_itself_refuses_what_passed_by_the_forms(fields: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        version(**fields).save()
