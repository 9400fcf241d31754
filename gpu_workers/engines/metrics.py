"""What vLLM's server says of its own load, in Prometheus' text format."""

from __future__ import annotations

from msgspec import Struct

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
GENERATED = "vllm:generation_tokens_total"
READ = "vllm:prompt_tokens_total"
KV_USE = "vllm:kv_cache_usage_perc"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
WANTED = frozenset({RUNNING, WAITING, GENERATED, READ, KV_USE, PREFIX_QUERIES, PREFIX_HITS})


class EngineLoad(Struct, frozen=True):
    """`running` and `waiting` requests; tokens `generated`, and `read` of prompts, since the engine began; `kv_use` and
    `prefix_hits` (of prompt tokens, since the engine began) are shares from 0 to 1.

    None where the engine does not tell.
    """

    running: int = 0
    waiting: int = 0
    generated: int = 0
    read: int = 0
    kv_use: float | None = None
    prefix_hits: float | None = None


def parse_load(text: str) -> EngineLoad:
    """The load in a page of metrics; several engines behind one server are added up, their caches averaged."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in WANTED:
            value = _number(line.rpartition(" ")[2])
            if value is not None:
                found.setdefault(name, []).append(value)
    use, queries = found.get(KV_USE), sum(found.get(PREFIX_QUERIES, ()))
    return EngineLoad(
        running=int(sum(found.get(RUNNING, ()))),
        waiting=int(sum(found.get(WAITING, ()))),
        generated=int(sum(found.get(GENERATED, ()))),
        read=int(sum(found.get(READ, ()))),
        kv_use=min(1.0, sum(use) / len(use)) if use else None,
        prefix_hits=min(1.0, sum(found.get(PREFIX_HITS, ())) / queries) if queries else None,
    )


def _number(text: str) -> float | None:
    """None for what is no number that can be counted with."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
