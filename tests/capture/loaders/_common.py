"""What several tests of loaders compare."""

from capture.run import Run


def same(left: list[Run], right: list[Run]) -> bool:
    """Return whether runs are equal in name, metadata, events and tables; their logs may differ."""
    return len(left) == len(right) and all(
        a.name == b.name
        and a.meta == b.meta
        and a.events.equals(b.events)
        and a.tables.keys() == b.tables.keys()
        and all(a.tables[k].equals(b.tables[k]) for k in a.tables)
        for a, b in zip(left, right, strict=True)
    )
