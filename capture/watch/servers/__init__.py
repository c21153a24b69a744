"""The kinds of servers that are known, one module each: names of metrics, how they are asked to profile.

To add one, write a module that offers what `Kind` lists, and add its name to `SERVERS`.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from capture.watch.figures import Names

SERVERS: Final[tuple[str, ...]] = ("sglang", "vllm")


class Kind(Protocol):
    """What a module says of a kind of server."""

    NAME: str
    OWNER: str  # what it says of itself in /v1/models; its metrics begin with it and a colon
    NAMES: Names
    METRICS_FLAG: str  # with which it shows metrics; empty where it always does
    PROFILE_FLAG: str  # with which it can be asked to profile; empty where it always can
    TAKES_FOLDER: bool  # whether a request to profile says where the traces go

    def start_body(self, folder: Path | None) -> Mapping[str, Any] | None:
        """Return the body of a request to begin a profile; None for no body."""
        ...


def kinds() -> list[Kind]:
    """Return every kind of server that is known."""
    return [cast(Kind, import_module(f"{__name__}.{name}")) for name in SERVERS]
