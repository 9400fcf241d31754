"""A page of metrics is read for what it says, and harmless where it says nothing or nonsense."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.engines.metrics import EngineLoad, parse_load

PAGE = """\
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0"} 99.0
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1.2e+03
vllm:prompt_tokens_total{engine="0",model_name="m"} 70.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prefix_cache_queries_total{engine="0"} 200.0
vllm:prefix_cache_hits_total{engine="0"} 50.0
vllm:prefix_cache_hits_created{engine="0"} 1.7e+09
"""


def test_waiting_requests_are_added_up_and_shares_averaged() -> None:
    assert parse_load(PAGE) == EngineLoad(2, 4, 1200, 70, kv_use=0.5, prefix_hits=0.25)


def test_an_engine_that_tells_nothing_has_no_shares() -> None:
    assert parse_load("") == EngineLoad()
    assert parse_load('vllm:prefix_cache_queries_total{engine="0"} 0.0') == EngineLoad()


@given(
    st.lists(st.sampled_from(PAGE.splitlines()) | st.text(max_size=60)).map("\n".join)
    | st.from_regex(r"vllm:(num_requests_waiting|kv_cache_usage_perc)\{\} (NaN|-?Inf|-1|1e400|x|9{20})", fullmatch=True)
)
def test_no_page_breaks_it(text: str) -> None:
    load = parse_load(text)
    assert load.waiting >= 0
    assert all(share is None or 0 <= share <= 1 for share in (load.kv_use, load.prefix_hits))
