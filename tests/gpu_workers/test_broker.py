"""Celery's address of the broker: encrypted ones are checked without anybody having to ask for it."""

from __future__ import annotations

import ssl

import pytest
from kombu import Connection

from gpu_workers.broker import broker_url


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("rediss://:pw@broker:6380/0", "rediss://:pw@broker:6380/0?ssl_cert_reqs=required"),
        ("rediss://broker/0?ssl_ca_certs=%2Fca", "rediss://broker/0?ssl_ca_certs=%2Fca&ssl_cert_reqs=required"),
        ("rediss://broker/0?ssl_cert_reqs=none", "rediss://broker/0?ssl_cert_reqs=none"),
        ("redis://broker/0", "redis://broker/0"),
    ],
)
def test_celery_is_told_to_check_the_brokers_certificate(given: str, used: str) -> None:
    assert broker_url(given) == used
    if used.endswith("required"):
        assert Connection(used).ssl["ssl_cert_reqs"] == ssl.CERT_REQUIRED


def test_celery_would_not_check_it_untold() -> None:
    assert Connection("rediss://broker/0").ssl["ssl_cert_reqs"] == ssl.CERT_NONE
