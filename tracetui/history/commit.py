"""Ask git for the commit of a folder."""

import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from capture.clean_text import clean
from capture.errors import UsageError

GIT_TIMEOUT_S: Final = 60.0
_NO_HOOKS: Final = ("-c", "core.hooksPath=/dev/null")  # they are for what the user does


@dataclass(frozen=True)
class Commit:
    """A commit, and whether the files differ from it."""

    name: str
    time: datetime
    is_changed_tree: bool = False

    def as_columns(self) -> dict[str, Any]:
        """Return it as columns of a part."""
        return {"commit": self.name, "commit_time": self.time, "is_changed_tree": self.is_changed_tree}


def run_git(folder: Path, *words: str, timeout_s: float = GIT_TIMEOUT_S) -> str:
    """Return the output of git in a folder; raise UsageError if it fails or is not installed."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(folder), *_NO_HOOKS, *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError("git cannot be run", why=clean(str(error), 200)) from None
    if done.returncode:
        why = clean((done.stderr.strip().splitlines() or ["no message"])[-1], 200)
        raise UsageError(f"git {words[0]} failed", where=clean(str(folder), 400), why=why)
    return done.stdout


def find_commit(folder: Path, revision: str = "HEAD") -> Commit | None:
    """Return a commit of the repository around a folder; None without one."""
    try:
        name, seconds = run_git(folder, "log", "-1", "--format=%H %ct", revision, "--").split()
        changed = revision == "HEAD" and bool(run_git(folder, "status", "--porcelain", "-uno").strip())
    except (UsageError, ValueError):
        return None
    return Commit(name, datetime.fromtimestamp(int(seconds), UTC), changed)
