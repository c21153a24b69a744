"""The figures of a server from its metrics: by hand, by Prometheus' own example, and from hostile text."""

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.watch.prometheus import MetricSample, parse_samples
from capture.watch.server_metrics import RATE_WINDOW_S, MetricHistory, ServerMetric, estimate_quantile
from capture.watch.servers import load_kinds

VLLM = next(k for k in load_kinds() if k.OWNER == "vllm")
LLAMA_CPP = next(k for k in load_kinds() if k.OWNER == "llamacpp")
TRTLLM = next(k for k in load_kinds() if k.OWNER == "tensorrt_llm")
SGLANG = next(k for k in load_kinds() if k.OWNER == "sglang")

# as the documents of vLLM and SGLang print them
PRINTED_VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="unsloth/Llama-3.2-1B-Instruct"} 8.0
vllm:num_requests_running{engine="1",model_name="unsloth/Llama-3.2-1B-Instruct"} 4.0
vllm:num_requests_waiting{engine="0",model_name="unsloth/Llama-3.2-1B-Instruct"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="unsloth/Llama-3.2-1B-Instruct"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="unsloth/Llama-3.2-1B-Instruct"} 0.5
vllm:generation_tokens_total{engine="0",model_name="unsloth/Llama-3.2-1B-Instruct"} 1027.0
process_resident_memory_bytes 1.5e+09
"""
PRINTED_SGLANG = """\
sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
sglang:generation_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.557572e+06
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"} 162.0
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="1"} 162.0
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
"""


def named(figures: Sequence[ServerMetric]) -> dict[str, float]:
    return {f.name: f.value for f in figures}


def test_gauges_are_read_as_vllm_prints_them() -> None:
    figures = MetricHistory(VLLM.NAMES).add_reading(parse_samples(PRINTED_VLLM, "vllm:"), 0.0)
    assert named(figures) == {"requests running": 12.0, "requests waiting": 2.0, "KV cache usage": 50.0}
    assert {f.unit for f in figures} == {"requests", "%"}


def test_gauges_are_read_as_sglang_prints_them() -> None:
    figures = named(MetricHistory(SGLANG.NAMES).add_reading(parse_samples(PRINTED_SGLANG, "sglang:"), 0.0))
    expected = {"requests running": 162.0, "requests waiting": 2826.0, "KV cache usage": 28.0}
    assert figures == pytest.approx(expected)


@pytest.mark.parametrize("old", ["vllm:gpu_cache_usage_perc 0.5", "vllm:kv_cache_usage_perc 0.5"])
def test_older_names_are_known(old: str) -> None:
    assert named(MetricHistory(VLLM.NAMES).add_reading(parse_samples(old, "vllm:"), 0.0)) == {
        "KV cache usage": 50.0
    }


def tokens(count: float) -> list[MetricSample]:
    return [MetricSample("vllm:generation_tokens_total", {}, count)]


def test_a_rate_is_over_the_last_seconds() -> None:
    figures = MetricHistory(VLLM.NAMES)
    assert figures.add_reading(tokens(0), 0.0) == []
    for second in range(1, 31):  # 100 a second for 15 seconds, then 300
        count = 100 * second if second <= 15 else 1500 + 300 * (second - 15)
        now = named(figures.add_reading(tokens(count), float(second)))
        if second == 15:
            assert now == {"generated tokens/s": pytest.approx(100)}
    assert now == {"generated tokens/s": pytest.approx(300)}
    assert RATE_WINDOW_S == 10.0


def test_a_server_that_rests_produces_nothing_and_is_no_other() -> None:
    figures = MetricHistory(VLLM.NAMES)
    rates = [
        named(figures.add_reading(tokens(count), at)) for at, count in ((0.0, 100), (1.0, 100), (2.0, 300))
    ]
    assert rates == [{}, {"generated tokens/s": 0.0}, {"generated tokens/s": 100.0}]


def test_a_server_that_began_anew_has_no_negative_rate() -> None:
    figures = MetricHistory(VLLM.NAMES)
    figures.add_reading(tokens(5000), 0.0)
    assert figures.add_reading(tokens(10), 1.0) == []
    assert named(figures.add_reading(tokens(60), 2.0)) == {"generated tokens/s": pytest.approx(50)}


def buckets(counts: dict[str, float]) -> list[MetricSample]:
    name = "vllm:time_to_first_token_seconds"
    return [MetricSample(f"{name}_bucket", {"le": edge}, count) for edge, count in counts.items()]


def test_quantiles_are_of_what_came_between_two_readings() -> None:
    figures = MetricHistory(VLLM.NAMES)
    figures.add_reading(buckets({"0.1": 1000, "0.2": 1000, "+Inf": 1000}), 0.0)
    now = figures.add_reading(buckets({"0.1": 1000, "0.2": 1010, "+Inf": 1010}), 1.0)
    # ten requests, all between 100 and 200 ms: half of them by 150, 95 % by 195
    assert named(now) == pytest.approx({
        "TTFT p50": 150, "TTFT p50 from": 100, "TTFT p50 to": 200,
        "TTFT p95": 195, "TTFT p95 from": 100, "TTFT p95 to": 200,
    })  # fmt: skip
    assert {f.track for f in now} == {"estimated from buckets", "bounds of the bucket"}


def read_twice(before: str, after: str, kind: str = "vllm") -> dict[str, float]:
    """Return the metrics of ten seconds between two texts, of which each line is a name and a value."""
    history = MetricHistory({"vllm": VLLM, "sglang": SGLANG}[kind].NAMES)
    history.add_reading(parse_samples(before, f"{kind}:"), 0.0)
    return named(history.add_reading(parse_samples(after, f"{kind}:"), 10.0))


def test_means_are_exact() -> None:
    """Three requests finished before; two of 4 s and 6 s meanwhile, of which 1 s and 2 s in the queue."""
    names = {"e2e_request_latency": 10.0, "request_queue_time": 3.0, "inter_token_latency": 0.5}
    before = "".join(f"vllm:{name}_seconds_sum 7\nvllm:{name}_seconds_count 3\n" for name in names)
    after = "".join(
        f"vllm:{name}_seconds_sum {7 + more}\nvllm:{name}_seconds_count 5\n" for name, more in names.items()
    )
    expected = {"request time mean": 5000, "queue time mean": 1500, "ITL mean": 250}
    assert read_twice(before, after) == pytest.approx(expected)
    assert read_twice(after, after) == {}, "nothing finished"


def test_preemptions_and_prefix_cache() -> None:
    lines = (
        "vllm:num_preemptions_total {}\nvllm:prefix_cache_queries_total {}\nvllm:prefix_cache_hits_total {}\n"
    )
    now = read_twice(lines.format(5, 100, 100), lines.format(9, 300, 150))
    assert now == pytest.approx({"preemptions/s": 0.4, "prefix cache hits": 25})
    assert read_twice(lines.format(5, 100, 100), lines.format(5, 100, 100)) == {"preemptions/s": 0.0}


def test_requests_are_not_counted_again_by_their_priorities() -> None:
    lines = 'sglang:num_queue_reqs{priority=""} 6\nsglang:num_queue_reqs{priority="0"} 4\n'
    lines += 'sglang:num_queue_reqs{priority="1"} 2\n'
    figures = MetricHistory(SGLANG.NAMES).add_reading(parse_samples(lines, "sglang:"), 0.0)
    assert named(figures) == {"requests waiting": 6}


def test_no_request_has_no_quantile() -> None:
    figures = MetricHistory(VLLM.NAMES)
    figures.add_reading(buckets({"0.1": 5, "+Inf": 5}), 0.0)
    assert figures.add_reading(buckets({"0.1": 5, "+Inf": 5}), 1.0) == []


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({1.0: 10.0, 2.0: 10.0, math.inf: 10.0}, 0.5, (0.5, 0.0, 1.0)),
        ({1.0: 0.0, 2.0: 4.0, math.inf: 4.0}, 0.25, (1.25, 1.0, 2.0)),
        ({1.0: 1.0, 2.0: 2.0, math.inf: 4.0}, 0.95, (2.0, 2.0, math.inf)),  # beyond the last edge: that edge
        ({1.0: 0.0, math.inf: 0.0}, 0.5, None),
        ({}, 0.5, None),
    ],
)
def test_quantiles_by_hand(
    counts: dict[float, float], share: float, expected: tuple[float, float, float] | None
) -> None:
    assert estimate_quantile(counts, share) == expected


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50), st.sampled_from([0.5, 0.95]))
def test_an_estimate_lies_in_the_bucket_of_the_truth(values: list[float], share: float) -> None:
    edges = [0.1, 0.2, 0.5, 1.0, math.inf]
    counts = {edge: float(sum(value <= edge for value in values)) for edge in edges}
    truth = sorted(values)[math.ceil(share * len(values)) - 1]
    upper = next(edge for edge in edges if truth <= edge)
    lower = max((edge for edge in edges if edge < truth), default=0.0)
    estimate = estimate_quantile(counts, share)
    assert estimate is not None and lower - 1e-9 <= estimate[0] <= upper + 1e-9
    assert estimate[1] - 1e-9 <= truth <= estimate[2] + 1e-9


def test_labels_may_hold_anything() -> None:
    line = r'vllm:num_requests_running{a="}",model="x\"y 5",b="é"} 3'
    assert parse_samples(line, "vllm:") == [
        MetricSample("vllm:num_requests_running", {"a": "}", "model": r"x\"y 5", "b": "é"}, 3.0)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_running x",
        "vllm:num_requests_running NaN",
        "vllm:num_requests_running{a=} 5",
        'vllm:num_requests_running{a="' + "b" * 100_000,
        "vllm:num_requests_running " + "9" * 10_000,
        "vllm:num_requests_running{" + 'a="\\' * 2000,
    ],
)
def test_a_line_that_says_nothing_is_left_out(line: str) -> None:
    text = f"{line}\nvllm:num_requests_waiting 1\n"
    assert [s.name for s in parse_samples(text, "vllm:")] == ["vllm:num_requests_waiting"]


@given(st.text(max_size=300))
def test_whatever_the_text_nothing_is_raised(text: str) -> None:
    read = parse_samples(f"vllm:{text}\nvllm:generation_tokens_total{text} 5", "vllm:")
    MetricHistory(VLLM.NAMES).add_reading(read, 0.0)


def test_llama_cpp_tells_its_time_per_token() -> None:
    lines = "llamacpp:tokens_predicted_total {}\nllamacpp:tokens_predicted_seconds_total {}\n"
    rest = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\nllamacpp:prompt_tokens_total {}\n"
    history, read = MetricHistory(LLAMA_CPP.NAMES), LLAMA_CPP.create_reader()
    history.add_reading(read((lines + rest).format(100, 1.0, 50).encode()), 0.0)
    figures = named(history.add_reading(read((lines + rest).format(300, 3.0, 90).encode()), 10.0))
    assert figures["requests running"] == 2 and figures["requests waiting"] == 1
    assert figures["generated tokens/s"] == 20 and figures["prompt tokens/s"] == 4
    assert figures["ITL mean"] == pytest.approx(10.0)


def test_iterations_of_tensorrt_llm_are_summed() -> None:
    batch = {"numContextRequests": 1, "numGenRequests": 5, "numCtxTokens": 64, "numPausedRequests": 0}
    cache = {"maxNumBlocks": 100, "usedNumBlocks": 25}
    iteration = {"iterLatencyMS": 20.0, "numActiveRequests": 6, "numQueuedRequests": 2,
                 "inflightBatchingStats": batch, "kvCacheStats": cache}  # fmt: skip
    history, read = MetricHistory(TRTLLM.NAMES), TRTLLM.create_reader()
    history.add_reading(read(b"[]"), 0.0)
    figures = named(history.add_reading(read(json.dumps([iteration] * 10).encode()), 10.0))
    assert figures["requests running"] == 6 and figures["requests waiting"] == 2
    assert figures["KV cache usage"] == 25
    assert figures["generated tokens/s"] == 5 and figures["prompt tokens/s"] == 64
    assert figures["iteration time mean"] == pytest.approx(20.0)


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"[1, null]", b'[{"iterLatencyMS": "x"}]', b"[" * 9999])
def test_a_wrong_list_of_iterations_is_survived(body: bytes) -> None:
    history, read = MetricHistory(TRTLLM.NAMES), TRTLLM.create_reader()
    history.add_reading(read(body), 0.0)
    history.add_reading(read(body), 1.0)
