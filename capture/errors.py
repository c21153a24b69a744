"""The one family of errors that a person may see."""


class CaptureError(Exception):
    """What went wrong, where, why, and what to do about it, in one sentence."""

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
    """The input is not a profile that can be read."""


class UnforeseenError(UnreadableError):
    """The input holds what its loader was not written for: a fault of the loader; its cause says where."""


class UsageError(CaptureError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class PartialError(CaptureError):
    """Only a part could be read, or the runs cannot be compared, and the caller asked to be strict."""

    exit_code = 4


class EngineError(CaptureError):
    """The engine failed."""

    exit_code = 5
