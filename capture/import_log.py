"""Count the records that an import read, kept, repaired and dropped, with a notice per cause."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, convert, field
from msgspec.structs import asdict

from capture.clean_text import clean

Severity = Literal["notice", "data_loss", "error"]
_OFFSETS = 5


class Notice(Struct, frozen=True):
    """One kind of remark: how often it applies, and the first offsets in the file."""

    id: str
    severity: Severity
    count: int
    message: str
    offsets: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "offsets": list(self.offsets)}


class ImportLog(Struct, frozen=True):
    """The log of a finished import: read = kept + dropped."""

    source: str = ""
    format: str = ""
    read: int = 0
    repaired: int = 0
    dropped: int = 0
    notices: tuple[Notice, ...] = ()

    @property
    def retained(self) -> int:
        return self.read - self.dropped

    @property
    def lost_data(self) -> bool:
        """Whether data was lost, as opposed to merely noted."""
        return any(n.severity != "notice" for n in self.notices)

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "format": self.format,
            "read": self.read,
            "kept": self.retained,
            "repaired": self.repaired,
            "dropped": self.dropped,
            "notices": [n.as_dict() for n in self.notices],
        }


class Log(Struct):
    """The log of an import while its loader still writes it."""

    source: str = ""
    format: str = ""
    read: int = 0
    repaired: int = 0
    dropped: int = 0
    _notices: dict[str, Notice] = field(default_factory=dict)

    def note(
        self, id: str, message: str, *, count: int = 1, at: int | None = None, severity: Severity = "notice"
    ) -> None:
        """Add a notice for the reader of the numbers; the same id adds to its count."""
        previous = self._notices.get(id)
        offsets = previous.offsets if previous else ()
        if at is not None and len(offsets) < _OFFSETS:
            offsets = (*offsets, at)
        total = count + (previous.count if previous else 0)
        self._notices[id] = Notice(id, severity, total, clean(message, 2000), offsets)

    def drop(self, id: str, message: str, *, count: int = 1, at: int | None = None) -> None:
        """Count records that were dropped; a count of zero adds nothing."""
        if count:
            self.dropped += count
            self.note(id, message, count=count, at=at, severity="data_loss")

    def repair(self, id: str, message: str, *, count: int = 1, at: int | None = None) -> None:
        """Count records that were repaired; a count of zero adds nothing."""
        if count:
            self.repaired += count
            self.note(id, message, count=count, at=at)

    def add(self, other: ImportLog) -> None:
        """Add the records and notices of another import."""
        self.read += other.read
        self.repaired += other.repaired
        self.dropped += other.dropped
        for n in other.notices:
            self.note(n.id, n.message, count=n.count, severity=n.severity)

    def freeze(self) -> ImportLog:
        """Return the log as it is now."""
        counts = (self.read, self.repaired, self.dropped)
        return ImportLog(self.source, self.format, *counts, tuple(self._notices.values()))

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Log":
        """Return the log saved in a native file or the cache."""
        notices = {n["id"]: convert(n, Notice) for n in saved["notices"]}
        counts = (saved["read"], saved["repaired"], saved["dropped"])
        return cls(saved["source"], saved["format"], *counts, notices)
