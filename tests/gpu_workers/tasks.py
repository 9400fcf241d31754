"""Attempts for tests: what a web process would have sent."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from gpu_workers.messages import ChatMessage, GenerateTask, Sampling

SEAL_KEY = b"s" * 32
PROMPT = "whatissecretxyzzy"


def task(**changes: Any) -> GenerateTask:
    fields: dict[str, Any] = {
        "exchange": uuid4(),
        "attempt": 1,
        "request_id": "r-1",
        "reply_to": f"bursar:reply:{uuid4()}",
        "owner": "web-1",
        "deadline": time.time() + 60,
        "priority": 0,
        "cache_salt": "org",
        "messages": (ChatMessage("user", PROMPT),),
        "sampling": Sampling(max_tokens=16),
    }
    return GenerateTask(**fields | changes)
