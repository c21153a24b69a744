"""The rank of this process in a launch by torchrun, from the environment."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LAUNCH_VARIABLES: Final = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """The number of this process among all of the launch, and among those of its machine."""

    number: int
    size: int
    local: int
    local_size: int  # processes on its machine


def read_rank(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank that torchrun gave this process, or None if it runs alone."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if not all(environment.get(name, "").isdecimal() for name in names):
        return None
    rank = Rank(*(int(environment[name]) for name in names))
    return rank if rank.size > 1 else None


def build_run_id(environment: Mapping[str, str], rank: Rank) -> str:
    """Return an id that is equal for all ranks of one launch, without communication."""
    facts = [environment.get(name, "") for name in _LAUNCH_VARIABLES]
    if rank.local_size == rank.size:
        facts.append(str(_find_launcher_pid()))
    return hashlib.sha256("/".join(facts).encode()).hexdigest()[:16]


def _find_launcher_pid() -> int:
    """Return the process that started the ranks: each leads a session, or is in one led by a script."""
    leader = os.getsid(0)
    if leader == os.getpid():
        return os.getppid()
    try:
        return int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return os.getppid()
