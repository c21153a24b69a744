"""Errors whose message is shown to the user."""


class CaptureError(Exception):
    """An error in one sentence: what went wrong, where, why, and what to do about it."""

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", why: str = "", todo: str = "") -> None:
        self.what, self.where, self.why, self.todo = what, where, why, todo
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        parts = [head + (f" ({self.why})" if self.why else "")]
        if self.todo:
            parts.append(self.todo)
        return "; ".join(parts)


class UnreadableError(CaptureError):
    """The input is not a readable profile."""


class UnforeseenError(UnreadableError):
    """The loader failed on an input that it was not written for: a bug; `__cause__` has the details."""


class UsageError(CaptureError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class PartialError(CaptureError):
    """Only part of the input was readable, or the runs are not comparable, in strict mode."""

    exit_code = 4


class EngineError(CaptureError):
    """The engine failed."""

    exit_code = 5
