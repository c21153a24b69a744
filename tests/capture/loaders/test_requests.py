"""Logs of requests: what each says, against the file itself; logs that grow, that join, and that lie."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture.errors import UnreadableError, UsageError
from capture.load_runs import load, load_all
from capture.loaders.requests.request_rows import REQUESTS, TOKENS, LogFollower
from tests.conftest import FIXTURES

FOLDER = FIXTURES / "requests"


def write_log(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_clients_log_has_each_token() -> None:
    (run,) = load(FOLDER / "clients.jsonl", cache=False)
    lines = [json.loads(line) for line in (FOLDER / "clients.jsonl").open()]
    asked = {line["request"]: line for line in lines if "request" in line}
    assert run.meta["server"] == "http://127.0.0.1:8000"
    for row in run.tables[REQUESTS].iter_rows(named=True):
        line = asked.pop(row["request"])
        tokens = run.tables[TOKENS].filter(request=row["request"])
        assert row["sent_ns"] == round(line["sent_s"] * 1e9)
        assert (row["tokens"] or 0) == len(line["token_s"]) == tokens.height
        expected = [row["sent_ns"] + round(s * 1e9) for s in line["token_s"]]
        assert tokens["at_ns"].to_list() == expected
    assert not asked


def test_tokens_that_come_together_count_each(tmp_path: Path) -> None:
    line = {"request": 1, "sent_s": 10.0, "token_s": [0.5, 0.75], "token_counts": [3, 1]}
    (run,) = load(write_log(tmp_path / "x.jsonl", line), cache=False)
    assert run.tables[TOKENS].select("token", "tokens").rows() == [(3, 3), (4, 1)]
    assert run.tables[REQUESTS]["tokens"].to_list() == [4]


def test_spans_of_vllm_have_their_parts() -> None:
    """Compare with the attributes as vLLM 0.32 wrote them."""
    path = FOLDER / "vllm_spans.jsonl"
    rows = {}
    for line in path.open():
        for resource in json.loads(line)["resourceSpans"]:
            for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                values = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
                if "gen_ai.request.id" in values:
                    rows[values["gen_ai.request.id"]] = (values, span)
    (run,) = load(path, cache=False)
    table = run.tables[REQUESTS]
    assert set(table["request"]) == set(rows)
    for row in table.iter_rows(named=True):
        values, span = rows[row["request"]]
        assert row["sent_ns"] == int(span["startTimeUnixNano"])
        for column, key in (("queue_ns", "time_in_queue"), ("prefill_ns", "time_in_model_prefill"),
                            ("ttft_ns", "time_to_first_token"), ("total_ns", "e2e")):  # fmt: skip
            assert row[column] == round(values[f"gen_ai.latency.{key}"] * 1e9)
        assert row["tokens"] == int(values["gen_ai.usage.completion_tokens"])


def test_sglangs_log_has_finished_requests() -> None:
    (run,) = load(FOLDER / "sglang.jsonl", cache=False)
    (row,) = run.tables[REQUESTS].iter_rows(named=True)
    assert (row["request"], row["prompt_tokens"], row["tokens"], row["outcome"]) == ("a1", 64, 16, "length")
    assert (row["total_ns"], row["queue_ns"]) == (1_000_000_000, 10_000_000)


@pytest.mark.parametrize(
    "values",
    [
        {"token_s": [0.2, 0.1]}, {"token_s": ["x"]}, {"token_s": [float("nan")]}, {"token_s": 3},
        {"token_s": [0.1], "token_counts": [1, 2]}, {"token_s": [0.1], "token_counts": [-1]},
        {"token_s": [1e300]}, {"token_s": [0.1], "prompt_tokens": 1 << 70},
    ],
)  # fmt: skip
def test_impossible_values_are_left_out(tmp_path: Path, values: dict[str, Any]) -> None:
    (run,) = load(write_log(tmp_path / "x.jsonl", {"request": "1", "sent_s": 1.0, **values}), cache=False)
    assert run.tables[REQUESTS].height == 1
    assert TOKENS not in run.tables or run.tables[TOKENS].height == 1


def test_a_request_without_a_time_is_counted(tmp_path: Path) -> None:
    good = {"request": "1", "sent_s": 1.0, "token_s": [0.1]}
    path = write_log(tmp_path / "x.jsonl", good, {"request": "2", "sent_s": -1, "token_s": []})
    (run,) = load(path, cache=False)
    assert (run.log.read, run.log.dropped) == (2, 1)
    with pytest.raises(UnreadableError):
        load(write_log(tmp_path / "y.jsonl", {"request": "2", "sent_s": -1, "token_s": []}), cache=False)


def test_a_growing_log_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    follower = LogFollower(path, "a")
    assert not follower.poll()
    text = json.dumps({"request": "1", "sent_s": 1.0, "token_s": [0.1]}) + "\n"
    path.write_text(text + text[:20])
    assert follower.poll()[REQUESTS]["request"].to_list() == ["1 of a"]
    assert not follower.poll()
    path.write_text(text + text.replace('"1"', '"2"'))
    assert follower.poll()[TOKENS]["request"].to_list() == ["2 of a"]


def test_logs_of_client_and_server_are_one_request(tmp_path: Path) -> None:
    """vLLM appends a number to the id of the response."""
    served = load(FOLDER / "vllm_spans.jsonl", cache=False)[0].tables[REQUESTS].row(0, named=True)
    line = {"request": "7", "sent_s": 1.0, "token_s": [0.1], "server_id": served["server_id"][:-2]}
    path = write_log(tmp_path / "c.jsonl", line)
    logs = [str(FOLDER / "vllm_spans.jsonl"), str(path)]
    (run,) = load_all([path], cache=False, client_logs=logs)
    table = run.tables[REQUESTS]
    (row,) = table.filter(request="7 of c").iter_rows(named=True)
    assert row["queue_ns"] == served["queue_ns"] and row["ttft_ns"] == 100_000_000
    assert table.height == 3


def test_a_file_without_requests_is_no_log(tmp_path: Path) -> None:
    trace = FIXTURES / "chrome" / "torch_decode.json"
    with pytest.raises(UsageError, match="no log of requests"):
        load_all([trace], cache=False, client_logs=[str(trace)])
