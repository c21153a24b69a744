"""The numbers of the ops that a watched program runs: what is known of an op is written once, in a plan."""

import re
import weakref
from typing import Any, Final

from .kernels import Row

# what a module of such a name does besides calling its projections is the attention itself
_ATTENTION: Final = re.compile(r"(?i)(^|[._])(self_?)?att(entio)?n$")


class OpNumbers:
    """Gives every distinct op a number, and collects those that no plan line holds yet."""

    def __init__(self) -> None:
        self.lens = "wall"  # of the modules' own work
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._modules: dict[tuple[int, bool], tuple[weakref.ref[Any], int]] = {}
        self._new: list[dict[str, Any]] = []

    def of_module(self, module: Any, name: str, *, has_inner: bool) -> int:
        """Return the number of a module's own work; `has_inner` when it called modules within it."""
        key = id(module), has_inner
        entry = self._modules.get(key)
        if entry is not None and entry[0]() is module:  # an id may come again once its module is gone
            return entry[1]
        number = self._number(_module_op(name, self.lens, has_inner=has_inner))
        self._modules[key] = weakref.ref(module), number
        return number

    def of_row(self, row: Row, phase: str) -> int:
        """Return the number of a row of a profiler window, in a step of this phase."""
        owner = row.owner or ""
        return self._number(
            {
                "name": row.name,
                "layer": _layer(owner),
                "lens": "host" if row.lens == "wall" else row.lens,  # the modules' wall time holds these
                "path": " / ".join([*owner.split("."), row.name]) if owner else row.name,
                "phase": row.phase or phase,
                "track": row.track,
            }
        )

    def forget_modules(self) -> None:
        """Number the modules anew: their names have changed."""
        self._modules.clear()

    def take_new(self) -> list[dict[str, Any]]:
        """Return the ops that were numbered since the last call, as a plan line holds them."""
        new, self._new = self._new, []
        return new

    def _number(self, op: dict[str, Any]) -> int:
        key = tuple(op.values())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            stated = {name: value for name, value in op.items() if value is not None}
            self._new.append({"id": number, "kind": "kernel", **stated})
        return number


def _module_op(name: str, lens: str, *, has_inner: bool) -> dict[str, Any]:
    local = _name_in_layer(name)
    is_core = has_inner and _ATTENTION.search(local) is not None
    return {
        "name": f"{local} (own work)" if has_inner else local,
        "layer": _layer(name),
        "lens": lens,
        "path": name.replace(".", " / "),
        "op": "attn.core" if is_core else None,
        "category": "attention" if is_core else None,
    }


def _layer(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def _name_in_layer(name: str) -> str:
    """Return the part of a module's name behind its layer's number, which is the same for all layers."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[numbers[0] + 1 :]) or "layer" if numbers else name
