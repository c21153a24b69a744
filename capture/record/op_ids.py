"""Ids of the ops that a program runs. A recording describes each op once, in a line of kind `plan`."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import re
import threading
import weakref
from contextlib import suppress
from operator import add, itemgetter, neg
from typing import TYPE_CHECKING, Any, Final

from ..native.schema import RECORDING_NAME, UNWATCHED_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .profiler_windows import LeafWork

    ModuleIds = dict[int, tuple[weakref.ref[Any], int]]

# name of a module whose own work, outside of the modules that it calls, is the attention itself
_ATTENTION_NAME: Final = re.compile(r"(?i)(^|[._])(self_?)?att(entio)?n$")

_LAYER: Final = re.compile(r"(^|\.)[0-9]+(?=\.|$)")  # in the path of a module
_COMPILE_WRAPPER: Final = re.compile(r"\b_orig_mod\.|(^|\.)_orig_mod$")  # in the path of a module
_OBSERVERS: Final = ("torch.ao.quantization", "torch.quantization")  # watch values; they are no models

# work of a thread outside all modules, by part of the program
PROGRAM_PARTS: Final[dict[str, dict[str, Any]]] = {
    "backward": {"name": "backward", "phase": "backward"},
    "optimizer": {"name": "optimizer", "phase": "optimizer"},
    "data": {"name": "data", "op": "data", "category": "host"},
    "replay": {"name": "graph replay", "op": "host", "category": "host"},
    "loss": {"name": "loss and host", "op": "host", "category": "host"},
    "sampling": {"name": "sampling and host", "op": "sample", "category": "sampling"},
    "recording": {"name": RECORDING_NAME, "op": "host", "category": "host"},
    "unwatched": {"name": UNWATCHED_NAME, "op": "host", "category": "host"},
    "host": {"name": "host", "op": "host", "category": "host"},
}


class OpIds:
    """Gives every distinct op an id, and collects new ops for the next plan line."""

    def __init__(self) -> None:
        self._ids: dict[tuple[Any, ...], int] = {}
        self._parts: dict[tuple[str, str, str | None], int] = {}  # cached, because every step needs them
        self._new: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def assign_part(self, part: str, lens: str, track: str | None) -> int:
        """Return the op id of a part of the program, a key of PROGRAM_PARTS."""
        key = part, lens, track
        op_id = self._parts.get(key)
        if op_id is None:
            fields = PROGRAM_PARTS[part]
            op_id = self.assign({**fields, "path": fields["name"], "lens": lens, "track": track})
            self._parts[key] = op_id
        return op_id

    def assign_leaf_work(self, row: LeafWork, phase: str, track: str | None) -> int:
        """Return the op id of leaf work from a profiler window, in a step of this phase."""
        owner = row.owner or ""
        op = {
            "name": row.name,
            "layer": _parse_layer(owner),
            "lens": "host" if row.lens == "wall" else row.lens,  # contained in the modules' wall time
            "path": " / ".join([*owner.split("."), row.name]) if owner else row.name,
            "phase": row.phase or phase,
            "track": row.track or track,
        }
        return self.assign(op)

    def pop_new(self) -> list[dict[str, Any]]:
        """Return the ops added since the last call, as fields of a plan line."""
        if not self._new:  # asked without the lock, because every step asks
            return []
        with self._lock:
            new, self._new = self._new, []
        return new

    def replace_new(self, ops: dict[int, dict[str, Any]]) -> bool:
        """Describe ops anew, by id, if all are still to be written; return whether they were."""
        with self._lock:
            places = {op["id"]: place for place, op in enumerate(self._new)}
            if not places.keys() >= ops.keys():
                return False
            self._ids = {key: op_id for key, op_id in self._ids.items() if op_id not in ops}
            for op_id, op in ops.items():
                key = _build_key(op)
                self._ids[key] = op_id
                self._new[places[op_id]] = {"id": op_id, "kind": "kernel", **dict(key)}
        return True

    def assign(self, op: dict[str, Any]) -> int:
        """Return the id of an op."""
        key = _build_key(op)
        op_id = self._ids.get(key)
        if op_id is None:
            with self._lock:
                op_id = self._ids.setdefault(key, len(self._ids))
                if op_id == len(self._ids) - 1:
                    self._new.append({"id": op_id, "kind": "kernel", **dict(key)})
        return op_id


def _build_key(op: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, value) for name, value in op.items() if value is not None))


DRAFT: Final = "draft"  # the op of a model whose tokens another one verifies


class ModuleOps:
    """Op ids of the modules that one thread calls, cached so that a call costs one lookup."""

    def __init__(self, op_ids: OpIds, names: ModuleNames, track: str | None) -> None:
        self.lens = "wall"  # of the time spent in modules themselves
        self._op_ids, self._names, self._track = op_ids, names, track
        self._ids_by_phase: dict[str | None, tuple[ModuleIds, ModuleIds]] = {}

    def find_id(self, module: Any, *, has_inner: bool, phase: str | None) -> int:
        """Return the op id of a module's own work; `has_inner` if it called other modules."""
        ids = self.select_phase(phase)[has_inner]
        entry = ids.get(id(module))
        if entry is not None and entry[0]() is module:  # ids are reused after a module is gone
            return entry[1]
        op = self._build_op(module, self._names.find_name(module), has_inner=has_inner, phase=phase)
        op_id = self._op_ids.assign(op)
        ids[id(module)] = weakref.ref(module), op_id
        return op_id

    def _build_op(self, module: Any, name: str, *, has_inner: bool, phase: str | None) -> dict[str, Any]:
        op = _build_module_op(module, name, has_inner=has_inner)
        if phase == DRAFT:  # part of the step that verifies its tokens, and in none of the layers of that
            op, phase = {"name": f"draft {op['name']}", "op": DRAFT}, None
        return {**op, "lens": self.lens, "phase": phase, "track": self._track}

    def rename_inner(self, module: Any) -> None:
        """Name the modules within one by their paths below it, if nothing of those called is written yet.

        `generate` calls the encoder of a model before the model.
        """
        paths = {id(part): path for path, part in _list_parts(module) if path}
        ops = {
            op_id: self._build_op(part(), paths[key], has_inner=bool(has_inner), phase=phase)
            for phase, pair in self._ids_by_phase.items()
            for has_inner, ids in enumerate(pair)
            for key, (part, op_id) in ids.items()
            if key in paths and part() is not None
        }
        if ops and self._op_ids.replace_new(ops):
            self._names.rename(module)

    def select_phase(self, phase: str | None) -> tuple[ModuleIds, ModuleIds]:
        """Return the caches id → (module, op id) of a phase, without and with inner calls."""
        return self._ids_by_phase.setdefault(phase, ({}, {}))

    def set_lens(self, lens: str) -> None:
        """Set the lens of the ops from now on."""
        if lens != self.lens:
            self.forget()
            self.lens = lens

    def forget(self) -> None:
        """Clear the cache after module names have changed."""
        self._ids_by_phase.clear()


class ModuleNames:
    """The path of each module below its top-level module; paths are unique."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._sizes: dict[int, tuple[weakref.ref[Any], int]] = {}  # of top-level modules
        self._outermost: dict[str, int] = {}  # number of top-level modules with this name
        self.layers: set[int] = set()  # ids of layers and of what is in none
        self.numbered_layers: set[int] = set()  # ids of those that are layers, within which nothing is one

    def find_name(self, module: Any) -> str:
        """Return the path of a module, or the name of its type if it belongs to no known module."""
        entry = self._names.get(id(module))
        return entry[1] if entry is not None and entry[0]() is module else type(module).__name__

    def measure_size(self, module: Any) -> int:
        """Return the number of values in a top-level module, and name it and all modules within."""
        entry = self._sizes.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        size = 0 if type(module).__module__.startswith(_OBSERVERS) else _count_values(module)
        self._sizes[id(module)] = weakref.ref(module), size
        if size:
            self._add_tree(module)
        return size

    def rename(self, module: Any) -> None:
        """Name all modules within a top-level module by their paths below it, whatever their names were."""
        for path, part in _list_parts(module):
            if path:
                self._add_name(part, path)

    def _add_tree(self, module: Any) -> None:
        for path, part in _list_parts(module):
            entry = self._names.get(id(part))
            if entry is None or entry[0]() is not part:
                self._add_name(part, path or self._name_outermost(part))

    def _add_name(self, part: Any, path: str) -> None:
        self._names[id(part)] = weakref.ref(part), path
        is_inside = any(name.isdecimal() or name == "*" for name in path.split(".")[:-1])
        (self.layers.discard if is_inside else self.layers.add)(id(part))
        is_layer = not is_inside and path.rpartition(".")[2].isdecimal()
        (self.numbered_layers.add if is_layer else self.numbered_layers.discard)(id(part))

    def _name_outermost(self, module: Any) -> str:
        name = type(module).__name__
        count = self._outermost[name] = self._outermost.get(name, 0) + 1
        return name if count == 1 else f"{name} {count}"


def _list_parts(module: Any) -> list[tuple[str, Any]]:
    """Return all modules within a module with their paths, each once.

    What several layers share, as vLLM's layers share one rotary embedding, has `*` for a layer number. What
    torch.compile wraps has the path that it would have alone.
    """
    parts = [(_COMPILE_WRAPPER.sub("", path), part) for path, part in module.named_modules()]
    layers: dict[int, set[int | None]] = {}
    for path, part in parts:
        for name, child in getattr(part, "_modules", {}).items():
            layers.setdefault(id(child), set()).add(_parse_layer(f"{path}.{name}"))
    shared = [f"{path}." for path, part in parts if len(layers.get(id(part), ())) > 1]
    return [
        (_LAYER.sub(r"\1*", path, count=1) if any(map(f"{path}.".startswith, shared)) else path, part)
        for path, part in parts
    ]


def _count_values(module: Any) -> int:
    """Return the number of values in a module; 1 if they are not created yet, 0 if it has none."""
    size = sum(hasattr(part, "_packed_params") for _, part in module.named_modules())  # hidden weights
    for tensors in (module.parameters(), module.buffers(), list_frozen_weights(module)):
        for tensor in tensors:
            try:
                size += int(tensor.numel())
            except ValueError:  # a lazy module makes them with its first call
                size += 1
    return size


def list_frozen_weights(module: Any) -> list[Any]:
    """Return the weights of a module of torch.jit that was frozen: they are constants of its graph."""
    weights: list[Any] = []
    if type(module).__name__ != "RecursiveScriptModule":
        return weights
    with suppress(Exception):  # another version of torch
        nodes = [] if module._c.hasattr("training") else module.graph.findAllNodes("prim::Constant")
        tensors = [
            node.t("value") for node in nodes if node.hasAttribute("value") and node.kindOf("value") == "t"
        ]
        weights += (tensor for tensor in tensors if tensor.dim())
    return weights


def _build_module_op(module: Any, name: str, *, has_inner: bool) -> dict[str, Any]:
    """Describe a module's own work as an op; torch's own modules in a list are a sequence, not layers."""
    is_sequence_item = not has_inner and name.rpartition(".")[2].isdecimal() and _is_torch_module(module)
    local_name = name if is_sequence_item else _strip_layer(name)
    is_core = has_inner and _ATTENTION_NAME.search(local_name) is not None
    return {
        "name": f"{local_name} (own work)" if has_inner else local_name,
        "layer": None if is_sequence_item else _parse_layer(name),
        "path": name.replace(".", " / "),
        "op": "attn.core" if is_core else None,
        "category": "attention" if is_core else None,
    }


def _is_torch_module(module: Any) -> bool:
    """Return whether a module is one of torch's own."""
    return type(module).__module__.startswith("torch.nn.")


def _parse_layer(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def _strip_layer(name: str) -> str:
    """Return a module's name without its layer number and what precedes it: equal for all layers."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdecimal() or part == "*"]
    return ".".join(parts[numbers[0] + 1 :]) or "layer" if numbers else name


class LogShape:
    """The calls of a complete log: another one with the same calls is read without a loop over them.

    Modules are told by their ids, so that none is kept alive.
    """

    def __init__(self, log: list[Any], ops: Sequence[int]) -> None:
        """`log` is complete, and `ops` are those of its rows, in the order of the ends of the calls."""
        open_places, pairs = [], []
        for place, time in enumerate(log[1::2]):
            if time > 0:
                open_places.append(place)
            else:
                pairs.append((open_places.pop(), place))
        self._module_ids, self._ops = list(map(id, log[::2])), list(ops)
        enters, leaves = zip(*pairs)
        self._get_starts, self._get_ends = itemgetter(*enters), itemgetter(*leaves)
        counts = [(leave - enter) // 2 for enter, leave in pairs]  # of the calls inside, just before it
        self._inner = [slice(row - count, row) for row, count in enumerate(counts) if count]

    def read_times(self, log: list[Any]) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the starts and the negative ends of a log with the same calls; None of another one."""
        if list(map(id, log[::2])) != self._module_ids:
            return None
        times = log[1::2]
        starts, ends = self._get_starts(times), self._get_ends(times)
        return (starts, ends) if min(starts) > 0 > max(ends) else None

    def build_rows(self, starts: Sequence[int], ends: Sequence[int]) -> tuple[Sequence[int], int]:
        """Return the rows of such a log, and the time in its outermost calls."""
        durations = list(map(neg, map(add, starts, ends)))
        for inner in self._inner:
            durations[inner.stop] -= sum(durations[inner])
        rows = [0] * (3 * len(durations))
        rows[::3], rows[1::3], rows[2::3] = self._ops, starts, durations
        return rows, sum(durations)
