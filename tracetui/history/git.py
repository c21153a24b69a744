"""Ask git for commits, and check them out beside the user's repository.

The user's files, index, HEAD and branches are never touched. Worktrees are our own, and removed at the end.
One folder of the cache holds those of one search; its lock says that the search is alive. What a killed
search left is removed by the next one.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError
from capture.files.user_dirs import find_cache_folder, make_private

GIT_TIMEOUT_S: Final = 60.0
_NO_HOOKS: Final = ("-c", "core.hooksPath=/dev/null")  # they are for what the user does
CHECK_OUT_TIMEOUT_S: Final = 3600.0  # of a large tree on a slow disk
_LOCK_NAME: Final = "lock"


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


@dataclass(frozen=True)
class Version:
    """A commit of a search, or a name that is put into the command."""

    name: str  # as shown
    commit: str = ""  # full name; empty for other versions
    about: str = ""  # subject of the commit


def list_commits(folder: Path, good: str, bad: str) -> list[Version]:
    """Return the commits from `good` to `bad` along first parents, both included.

    Raise UsageError if one is unknown, or `good` is no ancestor of `bad`.
    """
    ends = []
    for revision in (good, bad):
        try:
            ends.append(run_git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip())
        except UsageError as error:
            if "cannot be run" in error.what:
                raise
            todo = (
                "--over NAME,NAME… needs no repository"
                if not _is_repository(folder)
                else "git log lists them"
            )
            raise UsageError(f"no commit is called {revision!r} here", todo=todo) from None
    if ends[0] == ends[1]:
        raise UsageError(f"{good} and {bad} are the same commit", todo="name two")
    listed = run_git(
        folder, "log", "--first-parent", "--reverse", "--format=%H%x00%h%x00%s", f"{ends[0]}..{ends[1]}", "--"
    )
    first = run_git(folder, "log", "-1", "--format=%H%x00%h%x00%s", ends[0], "--")
    if run_git(folder, "merge-base", ends[0], ends[1]).strip() != ends[0]:
        raise UsageError(f"{good} is no ancestor of {bad}", todo="name the earlier commit first")
    rows = [line.split("\0") for line in (first + listed).splitlines() if line.count("\0") == 2]
    return [Version(clean(short, 40), commit, clean(subject, 200)) for commit, short, subject in rows]


def _is_repository(folder: Path) -> bool:
    with suppress(UsageError):
        return bool(run_git(folder, "rev-parse", "--git-dir"))
    return False


def find_root(folder: Path) -> Path:
    """Return the top folder of the repository around a folder; raise UsageError without one."""
    return Path(run_git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))


@dataclass
class Worktrees:
    """The worktrees of one search, made when they are needed."""

    root: Path  # of the user's repository
    folder: Path
    _lock: IO[bytes] = field(repr=False)

    @classmethod
    def open(cls, root: Path) -> "Worktrees":
        """Remove what killed searches of this repository left, and lock a folder for a new one."""
        cache = find_cache_folder()
        shared = make_private(cache.resolve() / "worktrees") if cache else None
        if shared is None:
            raise CaptureError("there is no private folder for worktrees", todo="set XDG_CACHE_HOME")
        start = hashlib.blake2b(str(root).encode(), digest_size=6).hexdigest()
        for leftover in sorted(shared.glob(f"{start}-*")):
            if (lock := _lock_folder(leftover)) is not None:
                cls(root, leftover, lock).remove()
        name = f"{start}-{secrets.token_hex(6)}"
        draft, folder = shared / f".{name}", shared / name
        draft.mkdir(mode=0o700)
        lock = _lock_folder(draft)
        draft.rename(folder)  # others remove folders of this name unless they are locked
        if lock is None:
            raise CaptureError("cannot be locked", where=str(folder))
        return cls(root, folder, lock)

    def check_out(self, version: Version) -> Path:
        """Return the worktree of a commit, made if there is none; raise UsageError if git fails."""
        path = self.folder / version.commit[:16]
        if not path.exists():
            words = ("worktree", "add", "--quiet", "--detach", "--force", str(path), version.commit)
            run_git(self.root, *words, timeout_s=CHECK_OUT_TIMEOUT_S)
        return path

    def remove(self) -> None:
        """Remove all worktrees and what git knows of them, and give the lock back."""
        for path in sorted(self.folder.iterdir()) if self.folder.exists() else ():
            if path.name != _LOCK_NAME:
                with suppress(UsageError):
                    run_git(self.root, "worktree", "unlock", str(path))
                with suppress(UsageError):
                    run_git(self.root, "worktree", "remove", "--force", str(path))
                shutil.rmtree(path, ignore_errors=True)
        _forget_worktrees(self.root, self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def _lock_folder(folder: Path) -> IO[bytes] | None:
    """Return the locked file of a folder, made if missing; None if another process holds it."""
    try:
        file = (folder / _LOCK_NAME).open("ab")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _forget_worktrees(root: Path, folder: Path) -> None:
    """Remove what git still knows of worktrees in a folder: of those that were killed half made, too.

    `git worktree prune` would also remove what it knows of the user's own, on a disk that is away.
    """
    try:
        common = Path(run_git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").rstrip("\n"))
    except UsageError:
        return
    for entry in (common / "worktrees").glob("*"):
        with suppress(OSError):
            if Path((entry / "gitdir").read_text().strip()).is_relative_to(folder):
                shutil.rmtree(entry)
    with suppress(OSError):
        (common / "worktrees").rmdir()  # as git does when it was the last
