"""Ranks: who is who, whose part is whose, and that together they decode what one decodes alone."""

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch
from torch import distributed

from capture.errors import UsageError
from capture.record.torchrun import Rank, build_run_id, read_rank
from engines.decoder import Decoder
from engines.host.engine_commands import Commands
from engines.models.catalogue import PRESETS
from engines.models.spec import Spec, list_tensors
from engines.ranks import rank_launcher
from engines.ranks.tensor_parallel import Collectives, RelayedCommands, ShardedSource, Team, join_ranks
from engines.token_sampling import GREEDY, TokenSampler
from engines.weights.checkpoint import WeightSource
from engines.weights.low_bit import QUANT_FORMATS
from engines.weights.matrix_storage import FP32
from engines.weights.quantised_storage import QuantisedStorage
from tests.engines import tiny

T = TypeVar("T")


def together(size: int, work: Callable[[Team], T]) -> list[T]:
    """The same work on so many ranks, each a thread of its own with gloo between them."""
    store, actual, failed = distributed.HashStore(), {}, []

    def rank(number: int) -> None:
        try:
            group = distributed.ProcessGroupGloo(store, number, size)
            actual[number] = work(Team(Rank(number, size, number, size), group))
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=rank, args=(n,), daemon=True) for n in range(size)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failed, failed
    return [actual[n] for n in range(size)]


def alone(number: int, size: int) -> Team:
    """One of several ranks, that never speaks to the others."""
    return Team(Rank(number, size, number, size), distributed.ProcessGroupGloo(distributed.HashStore(), 0, 1))


def test_the_environment_says_who_is_who() -> None:
    actual = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert read_rank(actual) == Rank(3, 4, 1, 2)
    assert read_rank({**actual, "WORLD_SIZE": "1", "RANK": "0"}) is None
    assert read_rank({"RANK": "0"}) is None
    assert read_rank({**actual, "RANK": "x"}) is None


def test_a_launch_has_one_id_and_the_next_another() -> None:
    one = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "a"}
    ids = {build_run_id(one, Rank(n, 2, n, 2)) for n in range(2)}
    assert len(ids) == 1
    assert build_run_id({**one, "MASTER_PORT": "2"}, Rank(0, 2, 0, 2)) not in ids


def test_a_script_between_the_starter_and_a_rank_changes_no_id() -> None:
    """As torchrun starts them, each in a session: one rank itself, the other by a shell that stays."""
    code = "from capture.record.torchrun import Rank, build_run_id as f; print(f({}, Rank(0, 2, 0, 2)))"
    alone = [sys.executable, "-c", code]
    by_script = ["sh", "-c", f'"$0" -c "{code}"; true', sys.executable]
    output = [
        subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=True).stdout
        for command in (alone, by_script)
    ]
    assert output[0] == output[1] != ""


@pytest.mark.parametrize(
    ("model", "size", "said"),
    [
        ("smollm2-135m", 2, "it has 9 heads, 3 of keys and values, 1536 feed-forward); possible: 3"),
        ("gemma-3-1b", 3, "possible: 2, 4"),
        ("qwen2.5-0.5b", 4, "possible: 2"),
    ],
)
def test_what_does_not_divide_is_refused(model: str, size: int, said: str) -> None:
    with pytest.raises(UsageError, match=f"{model} cannot be divided among {size} ranks") as refused:
        rank_launcher.share_spec(PRESETS[model], size)
    assert said in str(refused.value)


def test_every_rank_keeps_its_part_and_the_parts_are_the_whole() -> None:
    """Four heads over one of keys, by two ranks: rows are cut, columns are cut, the keys are on both."""
    spec, table = tiny.SPECS["gemma3"], tiny.weights(tiny.SPECS["gemma3"])
    parts = [ShardedSource(tiny.Table(table), spec, alone(n, 2)) for n in range(2)]
    own = list_tensors(rank_launcher.share_spec(spec, 2))
    for name, whole in table.items():
        one, other = (part.read(name) for part in parts)
        assert one.shape == other.shape == own[name]
        kind = name.split(".")[-2]
        if kind in ("q_proj", "gate_proj", "up_proj"):
            assert torch.equal(torch.cat((one, other)), whole)
        elif kind in ("o_proj", "down_proj"):
            assert torch.equal(torch.cat((one, other), 1), whole)
        else:
            assert torch.equal(one, whole) and torch.equal(other, whole)
    head = torch.cat([part.read("lm_head.weight") for part in parts])
    assert torch.equal(head[:301], table["model.embed_tokens.weight"])  # 301 rows: the last rank has 150
    assert head.shape[0] == 302 and not head[301].any()


def test_keys_of_two_heads_go_to_four_ranks_in_pairs() -> None:
    spec = tiny.SPECS["llama"]
    table = tiny.weights(spec)
    name = "model.layers.0.self_attn.k_proj.weight"
    kept = [ShardedSource(tiny.Table(table), spec, alone(n, 4)).read(name) for n in range(4)]
    first, second = table[name][:16], table[name][16:]
    assert all(torch.equal(k, w) for k, w in zip(kept, (first, first, second, second), strict=True))


def test_ranks_add_up_and_stand_side_by_side() -> None:
    def work(team: Team) -> tuple[list[float], list[list[float]]]:
        x = torch.tensor([1.0, 10.0]) * (team.rank.number + 1)
        team.sum_over_ranks(x)
        mine = torch.tensor([[0.0, 1.0], [2.0, 3.0]]) + 10 * team.rank.number
        return x.tolist(), team.join_columns(mine, 3).tolist()

    assert together(2, work) == [([3.0, 30.0], [[0.0, 1.0, 10.0], [2.0, 3.0, 12.0]])] * 2


def test_narrow_products_are_added_in_the_streams_dtype() -> None:
    """1 + 1/256 is between two numbers of bf16."""

    def work(team: Team) -> list[float]:
        state = SimpleNamespace(dtype=torch.float32)
        state.h = torch.tensor([(1.0, 2**-8)[team.rank.number]], dtype=torch.bfloat16)
        Collectives(team, TokenSampler(GREEDY, torch.device("cpu")), state, 3).attn_all_reduce()
        return [float(n) for n in state.h]

    assert together(2, work) == [[1 + 2**-8]] * 2


def test_what_rank_0_hears_reaches_all_at_once() -> None:
    def work(team: Team) -> tuple[list[Any], list[str], bool]:
        heard = Commands()
        if team.rank.number == 0:
            heard.pending = deque([{"do": "prompt", "text": "é"}])
            heard.rejected.append("nonsense")
        actual = RelayedCommands(team, heard)
        actual.refresh()
        heard.closed.set()
        for _ in range(3):
            actual.refresh()
        return list(actual.pending), list(actual.rejected), actual.closed.is_set()

    assert together(2, work) == [([{"do": "prompt", "text": "é"}], ["nonsense"], True)] * 2


def test_an_error_is_handed_to_who_started_the_ranks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not rank_launcher.report_error(UsageError("no"))
    monkeypatch.setenv(rank_launcher.ERROR_FILE, str(tmp_path / "error.json"))
    assert rank_launcher.report_error(UsageError("no", todo="do"))
    assert json.loads((tmp_path / "error.json").read_text())["message"] == "no; do"


def test_the_cause_is_named_and_not_its_consequence() -> None:
    class Failure:
        def __init__(self, exitcode: int, timestamp: int, message: str = "") -> None:
            self.exitcode, self.timestamp, self.message = exitcode, timestamp, message

    lost = Failure(rank_launcher.RankLostError.exit_code, 1, "another rank is gone")
    assert str(rank_launcher._find_cause({0: lost, 1: Failure(-9, 2)})) == "rank 1 was killed by SIGKILL"
    actual = Failure(-15, 2, "")
    assert str(rank_launcher._find_cause({0: actual, 1: Failure(-9, 2)})) == "rank 1 was killed by SIGKILL"
    refused = rank_launcher._find_cause({0: Failure(2, 5, "no model"), 1: Failure(-15, 6)})
    assert isinstance(refused, UsageError) and str(refused) == "rank 0: no model"


@pytest.mark.corpus
@pytest.mark.parametrize(("family", "size"), [(f, 2) for f in tiny.SPECS] + [("llama", 4), ("gemma3", 4)])
def test_together_they_decode_what_one_decodes_alone(family: str, size: int) -> None:
    """Past the window, through the cache, a batch of two; 301 words of which the last rank has fewer."""
    spec = tiny.SPECS[family]
    table = tiny.weights(spec)
    ids = torch.randint(0, spec.vocab, (2, 20), generator=torch.Generator().manual_seed(1))
    fused = family != "qwen2"
    wanted = tiny.logits(tiny.decoder(spec, table, batch=2, fused=fused), ids, prefill=13)

    def work(team: Team) -> torch.Tensor:
        own = rank_launcher.share_spec(spec, size)
        source = ShardedSource(tiny.Table(table), spec, team)
        model = Decoder(own, source, FP32, torch.device("cpu"), batch=2, capacity=64, fused=fused, team=team)
        return tiny.logits(model, ids, prefill=13)

    actual = together(size, work)
    assert all(torch.equal(rank, actual[0]) for rank in actual[1:])
    assert float((actual[0] - wanted).norm() / wanted.norm()) < 1e-5
    assert torch.equal(actual[0].argmax(-1), wanted.argmax(-1))


@pytest.mark.parametrize("form", ["q4f32_1", "q8_0"])
def test_packed_weights_are_shared_in_whole_groups(form: str) -> None:
    """The parts of a row are the groups that the whole row has, so that packing comes to the same."""
    spec = replace(tiny.SPECS["llama"], hidden=64, head_dim=32, ffn=128)
    table = tiny.weights(spec)
    ids = torch.randint(0, spec.vocab, (1, 12), generator=torch.Generator().manual_seed(5))

    def packed(own: Spec, source: WeightSource, team: Team | None) -> torch.Tensor:
        way = QuantisedStorage(QUANT_FORMATS[form], torch.device("cpu"))
        return tiny.logits(Decoder(own, source, way, torch.device("cpu"), capacity=64, team=team), ids, 7)

    wanted = packed(spec, tiny.Table(table), None)
    own = rank_launcher.share_spec(spec, 2)
    actual = together(2, lambda team: packed(own, ShardedSource(tiny.Table(table), spec, team), team))
    assert torch.equal(actual[0], actual[1])
    assert (
        float((actual[0] - wanted).norm() / wanted.norm()) < 0.03
    )  # activations are rounded to 8 bits, without compiled products per row


def test_the_plan_tells_what_ranks_send() -> None:
    """A ring of four sends twice three quarters of a sum, and three quarters of what is put together."""
    spec = tiny.SPECS["llama"]
    team = alone(1, 4)
    source = ShardedSource(tiny.Table(tiny.weights(spec)), spec, team)
    model = Decoder(rank_launcher.share_spec(spec, 4), source, FP32, torch.device("cpu"), team=team)
    assert [op.__name__ for op in model.ops] == [row.name for row in model.plan_step()]
    comm = [row for row in model.plan_step(tokens=5) if row.category == "comm"]
    assert [(r.op, r.layer) for r in comm] == [("comm", n) for n in range(7) for _ in range(2)] + [
        ("comm", None)
    ]
    assert {r.bytes for r in comm[:-1]} == {(2 * 0.75 * 5 * 48 * 4, 0)} and comm[-1].bytes == (
        0.75 * 301 * 4,
        0,
    )
    (head,) = (r for r in model.plan_step() if r.op == "lm_head")
    assert head.shape == "m=1 n=76 k=48"


def test_ranks_meet_only_where_each_has_a_device() -> None:
    with pytest.raises(UsageError, match="several ranks are not supported on mps"):
        join_ranks(Rank(0, 2, 0, 2), torch.device("mps"))
    if torch.cuda.device_count() < 64:
        with pytest.raises(UsageError, match="64 ranks need one GPU each"):
            join_ranks(Rank(0, 64, 0, 64), torch.device("cuda"))


@pytest.mark.parametrize(
    ("family", "what"),
    [("qwen3_moe", "a mixture of experts"), ("olmo2", "norms over all query heads"),
     ("gpt_oss", "a mixture of experts and attention sinks")],
)  # fmt: skip
def test_what_ranks_do_not_divide_is_refused_by_name(family: str, what: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be divided among ranks .not supported: {what}"):
        rank_launcher.share_spec(tiny.MORE[family], 2)
