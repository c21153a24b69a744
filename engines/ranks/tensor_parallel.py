"""Tensor parallelism: the part of every weight that a rank keeps, and how ranks add up their products."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from capture.errors import UsageError
from capture.record.torchrun import Rank
from engines.host.commands import Commands
from engines.models.spec import Spec
from engines.ranks.launch import LostError
from engines.sample import Sampler
from engines.weights.sources import Source

_BACKENDS: Final = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
EMBEDDING: Final = "model.embed_tokens.weight"
_BY_ROWS: Final = frozenset(("q_proj", "gate_proj", "up_proj"))
_BY_COLUMNS: Final = frozenset(("o_proj", "down_proj"))
_KEYS: Final = frozenset(("k_proj", "v_proj"))


class Team:
    """The ranks that decode one model, as one of them sees the others."""

    def __init__(self, rank: Rank, group: ProcessGroup) -> None:
        self.rank = rank
        self._group = group

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows, as many as every other's: the last rank's are filled up with zeros."""
        each = -(-whole.shape[0] // self.rank.size)
        rows = whole[self.rank.number * each :][:each]
        missing = each - rows.shape[0]
        return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:]))) if missing else rows

    def add(self, x: torch.Tensor) -> None:
        """Replace x by its sum over all ranks."""
        self._wait_for(lambda: self._group.allreduce([x]))

    def join(self, x: torch.Tensor, width: int) -> torch.Tensor:
        """Return every rank's columns side by side, up to a width."""
        every = x.new_empty(self.rank.size * x.shape[0], x.shape[1])
        self._wait_for(lambda: self._group._allgather_base(every, x.contiguous()))
        return every.view(self.rank.size, *x.shape).transpose(0, 1).reshape(x.shape[0], -1)[:, :width]

    def broadcast(self, words: bytes) -> bytes:
        """Return what rank 0 says; what the others pass is dropped."""
        size = torch.tensor([len(words)])
        self._wait_for(lambda: self._group.broadcast(size, 0))
        if not size:
            return b""
        text = torch.zeros(int(size), dtype=torch.uint8)
        if self.rank.number == 0:
            text = torch.frombuffer(bytearray(words), dtype=torch.uint8)
        self._wait_for(lambda: self._group.broadcast(text, 0))
        return text.numpy().tobytes()

    def leave(self) -> None:
        """Leave the group; one that lives on until the process ends would abort it."""
        distributed.destroy_process_group()
        del self._group

    def _wait_for(self, begin: Callable[[], Any]) -> None:
        try:
            begin().wait()
        except RuntimeError as e:
            raise LostError("another rank is gone", why=_reason(e)) from None


def join_ranks(rank: Rank, device: torch.device) -> Team:
    """Wait until all ranks are there. Hosts exchange data through gloo, GPUs through nccl."""
    if device.type not in _BACKENDS:
        raise UsageError(f"ranks do not decode on {device.type}", todo="choose --device cpu")
    if device.type == "cuda":
        there = torch.cuda.device_count()
        if rank.beside > there:
            todo = f"start {there} ranks, or choose --device cpu"
            raise UsageError(f"{rank.beside} ranks need a GPU each, and there is {there}", todo=todo)
        torch.cuda.set_device(rank.local)
    try:
        distributed.init_process_group(_BACKENDS[device.type], rank=rank.number, world_size=rank.size)
    except RuntimeError as e:
        raise LostError("the ranks did not meet", why=_reason(e)) from None
    group = distributed.group.WORLD
    assert group is not None, "the group was made above"
    return Team(rank, group)


def _reason(error: RuntimeError) -> str:
    """Return the first sentence of torch's error, without the place in its source."""
    line = str(error).partition("\n")[0].partition(". ")[0]
    return re.sub(r"^\[\S+\] ", "", line)[:200]


class Share:
    """A source that gives this rank's part of every weight of a model.

    The head is cut by rows and the embedding is not, so that a model that ties them is untied here.
    """

    def __init__(self, source: Source, spec: Spec, team: Team) -> None:
        self.label = source.label
        self._source, self._team, self._tied = source, team, spec.tied
        self._kept = max(1, team.rank.size // spec.kv_heads)  # ranks that keep the same keys

    def read(self, name: str) -> torch.Tensor:
        """Return a copy of this rank's part, so that the whole need not be kept for it."""
        kind, rank = name.split(".")[-2], self._team.rank
        if kind == "lm_head":
            return self._team.part(self._source.read(EMBEDDING if self._tied else name)).clone()
        whole = self._source.read(name)
        if kind in _BY_COLUMNS:
            return whole.chunk(rank.size, 1)[rank.number].clone()
        if kind in _KEYS:
            return whole.chunk(rank.size // self._kept)[rank.number // self._kept].clone()
        return whole.chunk(rank.size)[rank.number].clone() if kind in _BY_ROWS else whole

    def packed(self, name: str) -> None:
        return None


class Collectives:
    """The ops of the plan in which ranks wait for each other."""

    def __init__(self, team: Team, sampler: Sampler, state: Any, vocab: int) -> None:
        self._team, self._sampler, self._s, self._vocab = team, sampler, state, vocab

    def attn_all_reduce(self) -> None:
        self._add()

    def ffn_all_reduce(self) -> None:
        self._add()

    def logits_all_gather(self) -> None:
        self._sampler.logits = self._team.join(self._sampler.logits, self._vocab)

    def _add(self) -> None:
        """Add up the ranks' products in the stream's dtype, whatever each was computed in."""
        self._s.h = self._s.h.to(self._s.dtype)
        self._team.add(self._s.h)


class RelayedCommands(Commands):
    """Gives every rank at the same step what rank 0 has received, so that all do the same."""

    def __init__(self, team: Team, received: Commands) -> None:
        super().__init__()
        self._team, self._received = team, received

    def check(self) -> None:
        self._received.check()

    def refresh(self) -> None:
        self.check()
        news = json.loads(self._team.broadcast(self._collect_news()) or "{}")
        self.waiting.extend(news.get("waiting", ()))
        self.refused.extend(news.get("refused", ()))
        if news.get("closed"):
            self.closed.set()

    def _collect_news(self) -> bytes:
        """Return everything received since the last call as JSON; empty, most of the time."""
        closed = self._received.closed.is_set() and not self.closed.is_set()
        waiting, refused = _taken(self._received.waiting), _taken(self._received.refused)
        news = {"waiting": waiting, "refused": refused, "closed": closed}
        return json.dumps(news).encode() if any(news.values()) else b""


def _taken(queue: Any) -> list[Any]:
    return [queue.popleft() for _ in range(len(queue))]
