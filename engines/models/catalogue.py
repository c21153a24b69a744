"""Find a model by preset name or config.json, and the tensors that its folder stores."""

import difflib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from capture.errors import EngineError, UsageError
from capture.plugins import Plugin, load_entry_points
from engines.models import ENTRY_POINTS, FAMILIES
from engines.models.config_fields import Family, ModelConfig, TensorSlice
from engines.models.spec import Spec, check_sizes, list_tensors

CONFIG_LIMIT: Final = 1 << 20


def _load_families() -> tuple[dict[str, Family], list[Plugin]]:
    """Map `model_type` to family, ours before those of other packages; also return the unusable ones."""
    ours: list[Family] = [import_module(f"engines.models.{name}").FAMILY for name in FAMILIES]
    families = {family.model_type: family for family in ours}
    broken = []
    for plugin in load_entry_points(ENTRY_POINTS):
        problem = plugin.problem
        if not problem and not isinstance(plugin.value, Family):
            problem = "it is not a Family"
        elif not problem and plugin.value.model_type in families:
            problem = f"there is a family for {plugin.value.model_type} already"
        if problem:
            broken.append(plugin._replace(problem=problem))
        else:
            families[plugin.value.model_type] = plugin.value
    return families, broken


FAMILIES_BY_TYPE, BROKEN_FAMILIES = _load_families()
PRESETS: Final = {
    spec.name: spec
    for spec in sorted((s for f in FAMILIES_BY_TYPE.values() for s in f.presets), key=lambda spec: spec.name)
}


def find_preset(name: str) -> Spec:
    """Return the preset of a name. Raise UsageError with similar names for an unknown one."""
    if spec := PRESETS.get(name.lower()):
        return spec
    similar = difflib.get_close_matches(name.lower(), PRESETS, n=2, cutoff=0.4)
    todo = f"did you mean {' or '.join(similar)}?" if similar else f"known models: {', '.join(PRESETS)}"
    raise UsageError(f"unknown model {name}", why=describe_broken_families(), todo=todo)


def describe_broken_families() -> str:
    """Describe the families of other packages that cannot be used, each with its reason; empty if none."""
    return "; ".join(f"family {p.name} of {p.package} is left out: {p.problem}" for p in BROKEN_FAMILIES)


def read_config(path: Path, name: str) -> Spec:
    """Read the model of a config.json. Raise EngineError as `build_spec` does."""
    try:
        fields = json.loads(path.read_bytes()[:CONFIG_LIMIT])
    except (OSError, ValueError, RecursionError) as e:
        raise EngineError("cannot be read as a model config", where=str(path), why=str(e)[:200]) from None
    if not isinstance(fields, dict):
        raise EngineError("not a model config", where=str(path))
    return build_spec(fields, name, str(path))


def build_spec(fields: Mapping[str, Any], name: str, where: str = "config.json") -> Spec:
    """Build the model of a config's fields; `model_type` selects the family.

    Raise EngineError for an unknown family, a missing or invalid field, an impossible size, and for every key
    that is set but neither ignored nor read by the family.
    """
    family = FAMILIES_BY_TYPE.get(str(fields.get("model_type")))
    if family is None:
        todo = f"supported: {', '.join(FAMILIES_BY_TYPE)}"
        what = f"model type {fields.get('model_type')} is not supported"
        raise EngineError(what, where=where, why=describe_broken_families(), todo=todo)
    config = ModelConfig(fields)
    try:
        spec = family.read(config, name)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as e:
        raise EngineError("missing or invalid field", where=where, why=repr(e)[:200]) from None
    if refusals := config.list_refused():
        raise EngineError("requires unsupported features", where=where, why=", ".join(refusals)[:500])
    check_sizes(spec, where)
    return spec


def find_tensor_slice(spec: Spec, name: str) -> TensorSlice | None:
    """Find where a folder stores a tensor; None if it is stored as a tensor of that name."""
    return FAMILIES_BY_TYPE[spec.family].find_tensor_slice(spec, name)


def list_stored_tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor that a folder of this model contains."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in list_tensors(spec).items():
        slice_ = find_tensor_slice(spec, name) or TensorSlice(name, shape)
        shapes[slice_.name] = slice_.shape
        if slice_.scales:
            shapes[slice_.scales] = slice_.shape[:-1]
    return shapes
