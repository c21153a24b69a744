"""Ranks: processes that decode one model together, each with its share of the heads and the feed-forward.

`launch` is torchrun without its command line: torch starts the ranks, watches them, and ends the others
when one dies; here its verdict becomes a sentence.
"""

import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from capture.errors import CaptureError, EngineError, UsageError
from capture.record.torchrun import Rank
from engines.host.commands import StoppedError
from engines.models.spec import Spec

ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"


class LostError(EngineError):
    """Raised where another rank is gone and this one cannot go on: a consequence, never the cause."""

    exit_code = 75


def file_of(out: Path, rank: Rank) -> Path:
    """Return the file of a rank: all share one, unless `out` is a folder, where each has its own."""
    return out / f"rank-{rank.number}.jsonl" if out.is_dir() else out


def share(spec: Spec, size: int) -> Spec:
    """Return what one of so many ranks decodes; with fewer key heads than ranks, several keep the same."""
    if whole := _undivided(spec):
        raise UsageError(f"{spec.name} cannot be shared by ranks", why=f"they do not divide {whole}")
    if not _divides(spec, size):
        fits = ", ".join(str(n) for n in range(2, spec.heads + 1) if _divides(spec, n))
        raise UsageError(
            f"{spec.name} cannot be shared by {size} ranks",
            why=f"it has {spec.heads} heads, {spec.kv_heads} of keys and values, {spec.ffn} feed-forward",
            todo=f"it can by {fits}" if fits else "it decodes on one alone",
        )
    kv_heads = max(1, spec.kv_heads // size)
    return replace(spec, heads=spec.heads // size, kv_heads=kv_heads, ffn=spec.ffn // size, tied=False)


def _undivided(spec: Spec) -> str:
    """Return what of a model no rank takes a share of; empty where there is nothing."""
    wanted = {
        "a mixture of experts": spec.experts is not None,
        "attention with sinks": spec.sinks,
        "a norm over all queries": spec.whole_qk_norm,
    }
    return " and ".join(name for name, needed in wanted.items() if needed)


def _divides(spec: Spec, size: int) -> bool:
    keys = spec.kv_heads % size == 0 or size % spec.kv_heads == 0
    return keys and spec.heads % size == 0 and spec.ffn % size == 0


def launch(ranks: int, arguments: Sequence[str], id: str) -> None:
    """Runs this engine so many times as one and returns when all have ended; raises what ended the first."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        config = LaunchConfig(
            1,
            1,
            ranks,
            run_id=id,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            shutdown_timeout=5,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            elastic_launch(config, sys.executable)("-P", "-m", "engines", *arguments)
        except ChildFailedError as e:
            raise _cause(e.failures) from None
        except SignalException as e:
            raise StoppedError(int(e.sigval)) from None


# how a rank ends that misses another, or that is told to end because another has
_CONSEQUENCES: Final = (LostError.exit_code, -signal.SIGTERM)


def _cause(failures: Mapping[int, Any]) -> CaptureError:
    """Return the failure that brought the others about, as an error of ours."""
    rank, first = min(failures.items(), key=lambda f: (f[1].exitcode in _CONSEQUENCES, f[1].timestamp))
    if first.exitcode < 0:
        return EngineError(f"rank {rank} was ended by {signal.Signals(-first.exitcode).name}")
    kind = UsageError if first.exitcode == UsageError.exit_code else EngineError
    return kind(f"rank {rank}: {first.message}")


def report(error: CaptureError) -> bool:
    """Hand the error to the launcher of the ranks; return false where there is none."""
    place = os.environ.get(ERROR_FILE)
    with suppress(OSError):
        if place:
            Path(place).write_text(json.dumps({"message": str(error), "timestamp": int(time.time())}))
            return True
    return False
