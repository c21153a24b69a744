"""Tensor parallelism: the share of each weight per rank, and the sums of their products."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from capture.errors import UsageError
from capture.record.torchrun import Rank
from engines.host.engine_commands import Commands
from engines.models.spec import Spec
from engines.ranks.rank_launcher import RankLostError
from engines.token_sampling import TokenSampler
from engines.weights.checkpoint import WeightSource

_BACKENDS: Final = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
EMBEDDING: Final = "model.embed_tokens.weight"
_BY_ROWS: Final = frozenset(("q_proj", "gate_proj", "up_proj"))
_BY_COLUMNS: Final = frozenset(("o_proj", "down_proj"))
_KEYS: Final = frozenset(("k_proj", "v_proj"))


class Team:
    """The ranks that decode one model, as one of them sees them."""

    def __init__(self, rank: Rank, group: ProcessGroup) -> None:
        self.rank = rank
        self._group = group

    def slice_own_rows(self, weight: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows, as many as every other's: the last rank's are padded with zeros."""
        count = -(-weight.shape[0] // self.rank.size)
        rows = weight[self.rank.number * count :][:count]
        missing = count - rows.shape[0]
        return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:]))) if missing else rows

    def sum_over_ranks(self, x: torch.Tensor) -> None:
        """Replace x by its sum over all ranks."""
        self._wait_for(lambda: self._group.allreduce([x]))

    def join_columns(self, x: torch.Tensor, width: int) -> torch.Tensor:
        """Return the columns of all ranks next to each other, up to a width."""
        gathered = x.new_empty(self.rank.size * x.shape[0], x.shape[1])
        self._wait_for(lambda: self._group._allgather_base(gathered, x.contiguous()))
        return gathered.view(self.rank.size, *x.shape).transpose(0, 1).reshape(x.shape[0], -1)[:, :width]

    def broadcast(self, message: bytes) -> bytes:
        """Return the message of rank 0; messages of other ranks are dropped."""
        size = torch.tensor([len(message)])
        self._wait_for(lambda: self._group.broadcast(size, 0))
        if not size:
            return b""
        text = torch.zeros(int(size), dtype=torch.uint8)
        if self.rank.number == 0:
            text = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        self._wait_for(lambda: self._group.broadcast(text, 0))
        return text.numpy().tobytes()

    def leave(self) -> None:
        """Leave the group; if it lived until the process ends, it would abort it."""
        distributed.destroy_process_group()
        del self._group

    def _wait_for(self, start: Callable[[], Any]) -> None:
        try:
            start().wait()
        except RuntimeError as e:
            raise RankLostError("another rank is gone", why=_format_reason(e)) from None


def join_ranks(rank: Rank, device: torch.device) -> Team:
    """Wait until all ranks have joined. CPUs communicate through gloo, GPUs through nccl."""
    if device.type not in _BACKENDS:
        raise UsageError(f"several ranks are not supported on {device.type}", todo="choose --device cpu")
    if device.type == "cuda":
        gpus = torch.cuda.device_count()
        if rank.local_size > gpus:
            todo = f"start {gpus} ranks, or choose --device cpu"
            raise UsageError(f"{rank.local_size} ranks need one GPU each, {gpus} available", todo=todo)
        torch.cuda.set_device(rank.local)
    try:
        distributed.init_process_group(_BACKENDS[device.type], rank=rank.number, world_size=rank.size)
    except RuntimeError as e:
        raise RankLostError("the ranks could not connect", why=_format_reason(e)) from None
    group = distributed.group.WORLD
    assert group is not None, "the group was made above"
    return Team(rank, group)


def _format_reason(error: RuntimeError) -> str:
    """Return the first sentence of torch's error, without its source location."""
    line = str(error).partition("\n")[0].partition(". ")[0]
    return re.sub(r"^\[\S+\] ", "", line)[:200]


class ShardedSource(WeightSource):
    """A weight source that returns this rank's share of every weight.

    The head is divided by rows and the embedding is not, so a model that ties them is untied here.
    """

    def __init__(self, source: WeightSource, spec: Spec, team: Team) -> None:
        self._source, self._team, self._is_tied = source, team, spec.tied
        self._ranks_per_key = max(1, team.rank.size // spec.kv_heads)  # ranks that keep the same keys

    def read(self, name: str) -> torch.Tensor:
        """Return a copy of this rank's share, so that the full weight need not be kept."""
        kind, rank = name.split(".")[-2], self._team.rank
        if kind == "lm_head":
            return self._team.slice_own_rows(self._source.read(EMBEDDING if self._is_tied else name)).clone()
        weight = self._source.read(name)
        if kind in _BY_COLUMNS:
            return weight.chunk(rank.size, 1)[rank.number].clone()
        if kind in _KEYS:
            return weight.chunk(rank.size // self._ranks_per_key)[rank.number // self._ranks_per_key].clone()
        return weight.chunk(rank.size)[rank.number].clone() if kind in _BY_ROWS else weight


class Collectives:
    """The ops of the plan in which ranks exchange data."""

    def __init__(self, team: Team, sampler: TokenSampler, state: Any, vocab: int) -> None:
        self._team, self._sampler, self._state, self._vocab = team, sampler, state, vocab

    def attn_all_reduce(self) -> None:
        """Sum the ranks' products in the dtype of the stream, whatever each was computed in."""
        self._state.h = self._state.h.to(self._state.dtype)
        self._team.sum_over_ranks(self._state.h)

    def ffn_all_reduce(self) -> None:
        self.attn_all_reduce()

    def logits_all_gather(self) -> None:
        self._sampler.logits = self._team.join_columns(self._sampler.logits, self._vocab)


class RelayedCommands(Commands):
    """Gives every rank the commands of rank 0 at the same step, so that all do the same."""

    def __init__(self, team: Team, received: Commands) -> None:
        super().__init__()
        self._team, self._received = team, received

    def check_signals(self) -> None:
        self._received.check_signals()

    def refresh(self) -> None:
        self.check_signals()
        news = json.loads(self._team.broadcast(self._collect_news()) or "{}")
        self.pending.extend(news.get("waiting", ()))
        self.rejected.extend(news.get("refused", ()))
        if news.get("closed"):
            self.closed.set()

    def _collect_news(self) -> bytes:
        """Return everything received since the last call as JSON; usually empty."""
        newly_closed = self._received.closed.is_set() and not self.closed.is_set()
        pending, rejected = _drain(self._received.pending), _drain(self._received.rejected)
        news = {"waiting": pending, "refused": rejected, "closed": newly_closed}
        return json.dumps(news).encode() if any(news.values()) else b""


def _drain(queue: Any) -> list[Any]:
    return [queue.popleft() for _ in range(len(queue))]
