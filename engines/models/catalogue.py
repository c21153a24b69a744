"""Find a model: by the name of a preset, or by its config.json."""

import difflib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from capture.errors import EngineError, UsageError
from engines.models import FAMILIES
from engines.models.config import Config, Family
from engines.models.spec import Spec, check_sizes

CONFIG_LIMIT: Final = 1 << 20


def _families() -> dict[str, Family]:
    """Return every registered family by its `model_type`."""
    families: list[Family] = [import_module(f"engines.models.{name}").FAMILY for name in FAMILIES]
    return {family.model_type: family for family in families}


FAMILIES_BY_TYPE: Final = _families()
PRESETS: Final = {
    spec.name: spec
    for spec in sorted((s for f in FAMILIES_BY_TYPE.values() for s in f.presets), key=lambda spec: spec.name)
}


def preset(name: str) -> Spec:
    """Return the preset of that name. Raise UsageError with the nearest names for an unknown one."""
    if spec := PRESETS.get(name.lower()):
        return spec
    near = difflib.get_close_matches(name.lower(), PRESETS, n=2, cutoff=0.4)
    todo = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(PRESETS)}"
    raise UsageError(f"no model is called {name}", todo=todo)


def read_config(path: Path, name: str) -> Spec:
    """Return the model that a config.json describes. Raise EngineError as `from_config` does."""
    try:
        fields = json.loads(path.read_bytes()[:CONFIG_LIMIT])
    except (OSError, ValueError, RecursionError) as e:
        raise EngineError("cannot be read as a model's config", where=str(path), why=str(e)[:200]) from None
    if not isinstance(fields, dict):
        raise EngineError("is no model's config", where=str(path))
    return from_config(fields, name, str(path))


def from_config(fields: Mapping[str, Any], name: str, where: str = "config.json") -> Spec:
    """Return the model of a config's fields; its `model_type` decides on the family.

    Raise EngineError for an unknown family, a missing or broken field, a size beyond reason, and for every
    key that is set, is not known to be harmless, and is not read by the family.
    """
    family = FAMILIES_BY_TYPE.get(str(fields.get("model_type")))
    if family is None:
        todo = f"decoded are {', '.join(FAMILIES_BY_TYPE)}"
        raise EngineError(f"describes a {fields.get('model_type')} model", where=where, todo=todo)
    config = Config(fields)
    try:
        spec = family.read(config, name)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as e:
        raise EngineError("lacks or garbles a field", where=where, why=repr(e)[:200]) from None
    if refused := config.refused():
        raise EngineError("asks for what is not decoded here", where=where, why=", ".join(refused)[:500])
    check_sizes(spec, where)
    return spec
