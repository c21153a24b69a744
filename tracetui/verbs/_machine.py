"""Describe this machine in lines: its roofs, and the weights of every known model."""

import importlib.util
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from capture import nvidia, roofs
from capture.errors import CaptureError, EngineError
from capture.roofs import Roof
from tracetui import units
from tracetui.process import Bundled

BUSY: Final = 0.75  # of the cores, over the last minute
EVERY: Final = 0.02  # seconds between two looks at whether the engine has ended
MEASURE: Final = "tracetui doctor --measure"


def measure(device: str) -> Roof:
    """Measures the roofs of a device, and keeps them for every run to come."""
    roof = roofs.from_meta(_ask_engine("roofs", "--device", device).get("roof"))
    if roof is None:
        raise EngineError("the engine measured nothing")
    roofs.keep(roof)
    return roof


def busy() -> str:
    """Return why the figures may be too small; empty on a machine that does little else."""
    try:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
    except OSError:
        return ""
    words = f"the machine is busy (load {load:.1f} on {cores} cores): measure again when it is not"
    return words if load > cores * BUSY else ""


def roof_lines() -> Iterator[str]:
    """Yield every roof that is known: measured and kept, or stated in the table for a GPU that is here."""
    kept = list(roofs.kept().values())
    rest = [gpu for gpu in dict.fromkeys(nvidia.gpus()) if gpu not in {roof.device for roof in kept}]
    if not kept:
        yield f"roofs: none measured ({MEASURE})"
    else:
        yield f"roofs: {roofs.place()}"
    for roof in kept:
        yield from roof_entry(roof)
    for gpu in rest:
        stated = roofs.from_table(gpu)
        yield from roof_entry(stated) if stated else (f"  {gpu}: none ({MEASURE})",)


def roof_entry(roof: Roof) -> Iterator[str]:
    """Yield a device, its figures, and how they are known."""
    yield f"  {roof.device}: {', '.join(_figures(roof))}"
    if roof.source == roofs.TABLE:
        yield f"    table: as its maker states it ({MEASURE})"
    else:
        origin = [f"{roof.source} {roof.when}".rstrip(), *([f"torch {roof.torch}"] if roof.torch else [])]
        yield "    " + ", ".join(
            [*origin, *([f"driver {roof.driver}"] if roof.driver else []), *_stale(roof)]
        )


def _figures(roof: Roof) -> Iterator[str]:
    low, high = (units.giga(rate / 1e9) for rate in (roof.read_low, roof.read_high))
    apart = f" ({low} to {high})" if roof.read_low else ""
    for name, rate, spread in (("read", roof.read_bytes_per_s, apart), ("copy", roof.copy_bytes_per_s, "")):
        if rate:
            yield f"{name} {units.giga(rate / 1e9)} GB/s{spread}"
    for dtype, rate in roof.flop_per_s.items():
        yield f"{dtype} {units.giga(rate / 1e9)} GFLOP/s"
    if roof.floor_ns:
        yield f"launch floor {units.duration(roof.floor_ns)}"


def _stale(roof: Roof) -> Iterator[str]:
    """Yield why a run that starts now would not take the roof."""
    now = installed("torch")
    if roof.torch and now and roof.torch != now:
        yield f"not used: torch is {now} now ({MEASURE})"
    driver = nvidia.driver()
    if roof.driver and driver and roof.driver != driver:
        yield f"not used: the driver is {driver} now ({MEASURE})"


def driver_lines() -> Iterator[str]:
    """Yield why torch does not use the GPU that is here; nothing where nothing is known to be in its way."""
    if (built := _cuda_of_torch()) is not None and (why := nvidia.why_unused(built)):
        yield f"gpu: not used: {why}"


def _cuda_of_torch() -> str | None:
    """Return the version of CUDA that torch is built for, empty for none; None where there is no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    stated = re.search(r"^cuda\b[^=\n]*= '([\d.]+)'", text, re.MULTILINE)
    return stated[1] if stated else ""


def installed(package: str) -> str:
    """Return the version of a package; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def weight_lines() -> Iterator[str]:
    """Yield where weights are looked for, and what was found of each known model."""
    try:
        answer = _ask_engine("weights")["weights_found"]
    except (CaptureError, KeyError) as e:
        yield f"weights: cannot be looked for: {e}"
        return
    absent = "" if answer["there"] else ", which is not there"
    yield f"weights: {answer['folder']} ({answer['why']}){absent}"
    for entry in answer["found"]:
        yield from _weight_entry(entry)
    for place in answer["ollama"]:
        if place["there"]:
            yield f"Ollama: {place['folder']}"
    if answer["others"]:
        yield "other models that lie here, by the names that --model takes"
    for entry in answer["others"]:
        yield from _weight_entry(entry)


def _weight_entry(entry: Mapping[str, Any]) -> Iterator[str]:
    model = f"  {entry['model']:14}"
    if "refused" in entry:
        yield f"{model} refused: {entry['refused']}"
    elif "names" in entry:
        yield f"{model} random: none found under {', '.join(entry['names'])}"
    elif "file" in entry:
        yield f"{model} {entry['stored_as']}, {units.size(entry['bytes'])}: {entry['file']}"
    else:
        shards = f"{entry['shards']} shard{'s' * (entry['shards'] != 1)}, {units.size(entry['bytes'])}"
        words = "tokenizer" if entry["tokenizer"] else "no tokenizer.json: token ids in place of text"
        yield f"{model} config, {shards}, {words}: {entry['folder']}"


def _ask_engine(what: str, *more: str) -> Mapping[str, Any]:
    """What the engine tells of this machine in place of decoding."""
    from capture.open import load

    with tempfile.TemporaryDirectory(prefix="tracetui-") as folder:
        out = Path(folder) / "told.jsonl"
        engine = Bundled(("--tell", what, *more), out)
        try:
            while engine.running:
                time.sleep(EVERY)
        finally:
            engine.stop()
        if engine.failure_reason():
            raise engine.failure()
        return load(out, cache=False)[0].meta
