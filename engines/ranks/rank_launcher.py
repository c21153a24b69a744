"""Start the ranks that decode one model together, each with its share of heads and feed-forward.

`launch_ranks` is torchrun without its command line: torch starts the ranks, watches them, and ends the others
when one dies; its verdict becomes an error message.
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
from engines.host.engine_commands import StoppedError
from engines.models.spec import Spec

ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"


class RankLostError(EngineError):
    """Another rank is gone, and this one cannot continue: a consequence, never the cause."""

    exit_code = 75


def share_spec(spec: Spec, size: int) -> Spec:
    """Return the part of a model for one of `size` ranks; ranks share key heads if there are too few."""
    indivisible = {
        "a mixture of experts": spec.experts is not None,
        "attention sinks": spec.has_sinks,
        "norms over all query heads": spec.norms_all_heads,
    }
    if features := " and ".join(name for name, is_present in indivisible.items() if is_present):
        raise UsageError(f"{spec.name} cannot be divided among ranks", why=f"not supported: {features}")
    if not _is_divisible(spec, size):
        sizes = ", ".join(str(n) for n in range(2, spec.heads + 1) if _is_divisible(spec, n))
        why = f"it has {spec.heads} heads, {spec.kv_heads} of keys and values, {spec.ffn} feed-forward"
        todo = f"possible: {sizes}" if sizes else "use one rank"
        raise UsageError(f"{spec.name} cannot be divided among {size} ranks", why=why, todo=todo)
    kv_heads = max(1, spec.kv_heads // size)
    return replace(spec, heads=spec.heads // size, kv_heads=kv_heads, ffn=spec.ffn // size, tied=False)


def _is_divisible(spec: Spec, size: int) -> bool:
    has_divisible_keys = spec.kv_heads % size == 0 or size % spec.kv_heads == 0
    return has_divisible_keys and spec.heads % size == 0 and spec.ffn % size == 0


def launch_ranks(ranks: int, arguments: Sequence[str], id: str) -> None:
    """Run this engine as `ranks` processes until all have ended. Raise the error of the first to fail."""
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
            raise _find_cause(e.failures) from None
        except SignalException as e:
            raise StoppedError(int(e.sigval)) from None


# how a rank ends that misses another, or that is told to end because another has
_CONSEQUENCE_CODES: Final = (RankLostError.exit_code, -signal.SIGTERM)


def _find_cause(failures: Mapping[int, Any]) -> CaptureError:
    """Return the failure that caused the others, as an error of ours."""
    rank, failure = min(failures.items(), key=lambda f: (f[1].exitcode in _CONSEQUENCE_CODES, f[1].timestamp))
    if failure.exitcode < 0:
        return EngineError(f"rank {rank} was killed by {signal.Signals(-failure.exitcode).name}")
    kind = UsageError if failure.exitcode == UsageError.exit_code else EngineError
    return kind(f"rank {rank}: {failure.message}")


def report_error(error: CaptureError) -> bool:
    """Hand the error to the launcher of the ranks; return False if there is none."""
    path = os.environ.get(ERROR_FILE)
    with suppress(OSError):
        if path:
            Path(path).write_text(json.dumps({"message": str(error), "timestamp": int(time.time())}))
            return True
    return False
