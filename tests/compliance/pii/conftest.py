"""The real recognizers, loaded once."""

from __future__ import annotations

import pytest

from compliance.pii.analyzer import Analyzer


@pytest.fixture(scope="session")
def analyzer() -> Analyzer:
    return Analyzer()
