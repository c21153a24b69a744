"""The numbers of the ops that a watched program runs: what is known of an op is written once, in a plan."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import re
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .kernels import Row

    Known = dict[int, tuple[weakref.ref[Any], int]]

# what a module of such a name does besides calling its projections is the attention itself
_ATTENTION: Final = re.compile(r"(?i)(^|[._])(self_?)?att(entio)?n$")

# what a thread does outside of any module, by what it was found at
PARTS: Final[dict[str, dict[str, Any]]] = {
    "backward": {"name": "backward", "phase": "backward"},
    "optimizer": {"name": "optimizer", "phase": "optimizer"},
    "data": {"name": "data", "op": "data", "category": "host"},
    "replay": {"name": "graph replay", "op": "host", "category": "host"},
    "loss": {"name": "loss and host", "op": "host", "category": "host"},
    "sampling": {"name": "sampling and host", "op": "sample", "category": "sampling"},
    "recording": {"name": "recording (tracetui)", "op": "host", "category": "host"},
    "host": {"name": "host", "op": "host", "category": "host"},
}


class OpNumbers:
    """Gives every distinct op a number, and collects those that no plan line holds yet."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._parts: dict[tuple[str, str, str | None], int] = {}  # kept, for they are asked for in every step
        self._new: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def of_part(self, part: str, lens: str, track: str | None) -> int:
        """Return the number of what a thread does outside of any module: a key of PARTS."""
        key = part, lens, track
        number = self._parts.get(key)
        if number is None:
            stated = PARTS[part]
            number = self.of({**stated, "path": stated["name"], "lens": lens, "track": track})
            self._parts[key] = number
        return number

    def of_row(self, row: Row, phase: str, track: str | None) -> int:
        """Return the number of a row of a profiler window, in a step of this phase."""
        owner = row.owner or ""
        return self.of(
            {
                "name": row.name,
                "layer": _layer(owner),
                "lens": "host" if row.lens == "wall" else row.lens,  # the modules' wall time holds these
                "path": " / ".join([*owner.split("."), row.name]) if owner else row.name,
                "phase": row.phase or phase,
                "track": row.track or track,
            }
        )

    def take_new(self) -> list[dict[str, Any]]:
        """Return the ops that were numbered since the last call, as a plan line holds them."""
        with self._lock:
            new, self._new = self._new, []
        return new

    def of(self, op: dict[str, Any]) -> int:
        """Return the number of an op."""
        key = tuple(sorted((name, value) for name, value in op.items() if value is not None))
        number = self._numbers.get(key)
        if number is None:
            with self._lock:
                number = self._numbers.setdefault(key, len(self._numbers))
                if number == len(self._numbers) - 1:
                    self._new.append({"id": number, "kind": "kernel", **dict(key)})
        return number


class ModuleOps:
    """The numbers of the modules that one thread calls, kept so that a call costs one look."""

    def __init__(self, numbers: OpNumbers, names: ModuleNames, track: str | None) -> None:
        self.lens = "wall"  # of the modules' own work
        self._numbers, self._names, self._track = numbers, names, track
        self._known: dict[str | None, tuple[Known, Known]] = {}

    def of(self, module: Any, *, has_inner: bool, phase: str | None) -> int:
        """Return the number of a module's own work; `has_inner` when it called modules within it."""
        known = self.known(phase)[has_inner]
        entry = known.get(id(module))
        if entry is not None and entry[0]() is module:  # an id may come again once its module is gone
            return entry[1]
        op = _module_op(module, self._names.of(module), has_inner=has_inner)
        number = self._numbers.of({**op, "lens": self.lens, "phase": phase, "track": self._track})
        known[id(module)] = weakref.ref(module), number
        return number

    def known(self, phase: str | None) -> tuple[Known, Known]:
        """Return id → module and number, without and with modules called within; `of` adds to it."""
        return self._known.setdefault(phase, ({}, {}))

    def forget(self) -> None:
        """Number the modules anew: their names have changed."""
        self._known.clear()


class ModuleNames:
    """The path of each module below the one that is called from outside; no two of these have one name."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._sizes: dict[int, tuple[weakref.ref[Any], int]] = {}  # of those that are called from outside
        self._outermost: dict[str, int] = {}  # how many of this name were called from outside

    def of(self, module: Any) -> str:
        """Return the path of a module; the name of its type where it belongs to none that is known."""
        entry = self._names.get(id(module))
        return entry[1] if entry is not None and entry[0]() is module else type(module).__name__

    def size(self, module: Any) -> int:
        """Return how large a module is that is called from outside; it and all within it have names then."""
        entry = self._sizes.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        size = _size(module)
        self._sizes[id(module)] = weakref.ref(module), size
        if size:
            self._add_tree(module)
        return size

    def _add_tree(self, module: Any) -> None:
        for path, part in module.named_modules():
            entry = self._names.get(id(part))
            if entry is None or entry[0]() is not part:
                self._names[id(part)] = weakref.ref(part), path or self._outermost_name(module)

    def _outermost_name(self, module: Any) -> str:
        name = type(module).__name__
        count = self._outermost[name] = self._outermost.get(name, 0) + 1
        return name if count == 1 else f"{name} {count}"


def _size(module: Any) -> int:
    """Return the number of values in a module; 1 where they are not made yet, 0 where it has none."""
    size = 0
    for tensors in (module.parameters(), module.buffers()):
        for tensor in tensors:
            try:
                size += int(tensor.numel())
            except ValueError:  # a lazy module makes them with its first call
                size += 1
    return size


def _module_op(module: Any, name: str, *, has_inner: bool) -> dict[str, Any]:
    alone = not has_inner and name.rpartition(".")[2].isdecimal() and _is_of_torch(module)
    local = name if alone else _name_in_layer(name)
    is_core = has_inner and _ATTENTION.search(local) is not None
    return {
        "name": f"{local} (own work)" if has_inner else local,
        "layer": None if alone else _layer(name),
        "path": name.replace(".", " / "),
        "op": "attn.core" if is_core else None,
        "category": "attention" if is_core else None,
    }


def _is_of_torch(module: Any) -> bool:
    """Return whether a module is one of torch's own: in a list such are steps of a sequence, not layers."""
    return type(module).__module__.startswith("torch.nn.")


def _layer(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def _name_in_layer(name: str) -> str:
    """Return the part of a module's name behind its layer's number, which is the same for all layers."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[numbers[0] + 1 :]) or "layer" if numbers else name
