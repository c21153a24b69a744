"""A program of the user's beside the screen: recorded, shown with what it prints, and ended without delay."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tracetui.process.account import Account, family, members
from tracetui.process.commands import recorded_environment
from tracetui.process.engine import Engine

MOMENT: Final = 0.15  # seconds that leaving the screen may wait for it


class Foreign(Engine):
    """A program that is recorded without an edit; its standard input is at its end, for the keys are ours."""

    first_words = "starting the program"
    who = "the program"
    moment = MOMENT

    def __init__(self, command: Sequence[str], out: Path, log: Path | None = None) -> None:
        """Start it, recorded into `out`, what it prints also into `log`; raise EngineError where it cannot be
        started.
        """
        self._out = out
        self._account: Account | None = None
        super().__init__(command, with_watchdog=True, takes_orders=False, log=log)

    def start(self) -> None:
        """Start it, also once more: with an account of its own each time."""
        self._forget_account()
        self._run_id = secrets.token_hex(8)
        self._account = Account(self._run_id)
        self._environment = {**recorded_environment(self._out), **self._account.environment}
        try:
            super().start()
        except BaseException:
            self._forget_account()
            raise

    def stop(self, *, in_background: bool = False) -> None:
        """End it with all that it started."""
        super().stop(in_background=in_background)
        self._forget_account()

    def nothing_reason(self) -> str:
        """Return why nothing of it was recorded."""
        why = f", because {self._account.nothing_reason()}" if self._account else ""
        return f"nothing was watched{why}"

    def _strays(self) -> list[int]:
        """Return what it started that has left its group, as by a session of its own."""
        started = {*family(self.pid), *members(self._run_id)} - {self.pid, os.getpid()}
        return [pid for pid in sorted(started) if _group(pid) not in (self.pid, None)]

    def _forget_account(self) -> None:
        if self._account is not None:
            self._account.remove()
            self._account = None


def _group(pid: int) -> int | None:
    """Return the group of a process; None where it is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None
