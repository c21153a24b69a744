"""Which rank of which launch this process is, as torchrun says in the environment."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LAUNCH: Final = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """Which of how many processes this one is, on all machines and on its own machine."""

    number: int
    size: int
    local: int
    beside: int  # how many run on its machine


def of_environment(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank that torchrun gave this process; None where it is alone."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if not all(environment.get(name, "").isdecimal() for name in names):
        return None
    rank = Rank(*(int(environment[name]) for name in names))
    return rank if rank.size > 1 else None


def run_id(environment: Mapping[str, str], rank: Rank) -> str:
    """Return an id that is the same for every rank of one launch, though they exchange nothing."""
    facts = [environment.get(name, "") for name in _LAUNCH]
    if rank.beside == rank.size:
        facts.append(str(_starter()))
    return hashlib.sha256("/".join(facts).encode()).hexdigest()[:16]


def _starter() -> int:
    """Return the process that started the ranks: each leads a session, or is in one that a script leads."""
    leader = os.getsid(0)
    if leader == os.getpid():
        return os.getppid()
    try:
        return int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return os.getppid()
