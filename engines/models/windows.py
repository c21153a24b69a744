"""Read which layers of a model see only a window of the last positions."""

from dataclasses import replace

from engines.models.config import Config
from engines.models.spec import Spec

FULL, SLIDING = "full_attention", "sliding_attention"


def with_windows(spec: Spec, local: tuple[bool, ...], window: int) -> Spec:
    """Return the model with a window in the layers that `local` names; the same model where it names none."""
    return replace(spec, local=local, window=window) if any(local) else spec


def all_but_every(nth: int, layers: int) -> tuple[bool, ...]:
    """Return true for every layer but each n-th, which sees everything."""
    return tuple((layer + 1) % nth != 0 for layer in range(layers))


def stated_windows(config: Config, layers: int) -> tuple[bool, ...]:
    """Return which layers have a window by `layer_types`; empty where the config does not state it."""
    kinds = config.get("layer_types") or ()
    if kinds and len(kinds) != layers:
        raise ValueError("layer_types and num_hidden_layers disagree")
    for unknown in sorted({str(kind) for kind in kinds} - {FULL, SLIDING}):
        config.refuse(f"layer_types {unknown}")
    return tuple(kind == SLIDING for kind in kinds)


def switched_windows(config: Config, spec: Spec) -> Spec:
    """Return a Qwen model with the windows of its config, which are there but switched off as a rule."""
    on, window = config.flag("use_sliding_window"), config.integer("sliding_window", 0)
    first = config.integer("max_window_layers", 28)
    stated = stated_windows(config, spec.layers)
    if not on:
        if any(stated):
            config.refuse(f"layer_types {SLIDING} without use_sliding_window")
        return spec
    return with_windows(spec, stated or tuple(layer >= first for layer in range(spec.layers)), window)
