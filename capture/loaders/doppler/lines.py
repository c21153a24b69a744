"""The grammar of Doppler's log: tagged lines, and what single lines tell of a run."""

import re
from dataclasses import dataclass
from typing import Any, Final

from capture.loaders._json_document import whole
from capture.loaders._numbers import MILLISECOND, nanoseconds, number, real

_LINE: Final = re.compile(
    r"(?:\[browser:(?P<type>\w+)\] ?)?(?:\[(?P<ms>\d+(?:\.\d+)?)ms\] ?)?"
    r"(?:\[(?P<module>[A-Za-z][\w.-]*)\] ?)?"
)
_SIZE: Final = r"([\d.]+) ?([KMGT]?B)"
_UNITS: Final = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_MEMORY: Final = re.compile(r"Memory \((?P<when>[^)]*)\)")
_SIZES: Final = tuple(
    (name, re.compile(pattern + _SIZE))
    for name, pattern in (
        ("heap", r"\bHeap="),
        ("heap limit", r"\bHeap=[^|]*limit="),
        ("gpu", r"\bGPU="),
        ("gpu peak", r"\bGPU=[^|]*peak="),
        ("shard cache", r"\bShardCache="),
    )
)
_SELECT: Final = re.compile(r"(?P<op>\S+) variant=(?P<variant>\S+)(?: reason=(?P<reason>.*))?$")
_SHAPE: Final = re.compile(r"(?P<layers>\d+)L/(?P<hidden>\d+)H/(?P<heads>\d+)heads \((?P<head_dim>\d+)dim\)")
_PERF: Final = re.compile(r"(Load|TTFT|Prefill|Decode): ([\d.]+)ms(?: \((\d+) tokens @ ([\d.]+) tok/s\))?")
_PAIR: Final = re.compile(r'([\w/.]+)=("[^"]*"?|\S*)|(\S+)')
_FACTS: Final = (
    ("Pipeline", "kernel_path", re.compile(r"KernelPath: (\S+)")),
    ("Loader", "model", re.compile(r"Loading: (\S+)$")),
    ("Loader", "dtype", re.compile(r"Initialized \((\w+)")),
    ("Pipeline", "vocabulary", re.compile(r"differs from model=(\d+)")),
    ("GPU", "device", re.compile(r"([^,]+)")),
    ("GPU", "device_memory", re.compile(r"([\d.]+ ?[KMGT]B)$")),
)
_METRICS: Final = {
    "load": "load_ms", "ttft": "ttft_ms", "first": "ttft_ms", "prefill": "prefill_ms", "decode": "decode_ms",
    "total": "total_ms", "prefilltokens": "prompt_tokens", "decodetokens": "tokens",
    "maxtokens": "max_tokens", "prompt": "prompt", "runs": "runs", "tok/s": "tokens_per_s",
    "tok/s total": "tokens_per_s", "tok/s prefill": "prefill_tokens_per_s",
    "tok/s decode": "decode_tokens_per_s",
}  # fmt: skip
_MARKED: Final = {"KernelSelect": "selection", "Perf": "metric", "Benchmark": "metric", "metrics": "metric"}
_MARKED_TYPES: Final = ("warning", "error")


@dataclass(frozen=True)
class Line:
    """A log line taken apart."""

    module: str
    message: str
    type: str
    t: int | None

    @property
    def path(self) -> str | None:
        """The class under which the line is worth keeping as text; none for mere progress."""
        if self.module in _MARKED:
            return _MARKED[self.module]
        if "KernelPath:" in self.message:
            return "selection"
        return "log" if self.module == "ok" or self.type in _MARKED_TYPES else None


def parse(text: str) -> Line:
    parts = _LINE.match(text)
    if parts is None:
        return Line("", text, "", None)
    stamp = nanoseconds(parts["ms"], MILLISECOND) if parts["ms"] else None
    return Line(parts["module"] or "", text[parts.end() :], parts["type"] or "", stamp)


def facts(line: Line) -> dict[str, Any]:
    """Return what a line says of the whole run, as metadata."""
    if line.module in ("Perf", "Benchmark"):
        return _performance(line.message)
    if line.module == "metrics":
        return _metrics(line.message)
    if line.module == "ok":
        return _outcome(line.message)
    if shape := _SHAPE.search(line.message):
        sizes = {key: whole(digits) for key, digits in shape.groupdict().items()}
        return {key: size for key, size in sizes.items() if size is not None}
    return _stated(line)


def _stated(line: Line) -> dict[str, Any]:
    """Return the facts that a line says in words of its own, as numbers where they are whole."""
    matches = (
        (key, pattern.search(line.message)) for module, key, pattern in _FACTS if module == line.module
    )
    told = {key: m[1].strip() for key, m in matches if m}
    return {key: text if (value := whole(text)) is None else value for key, text in told.items()}


def memory(line: Line) -> list[tuple[str, float, str]]:
    """Return name, bytes and moment of every size that a loader's memory line prints."""
    moment = _MEMORY.search(line.message) if line.module == "Loader" else None
    if moment is None:
        return []
    sizes = ((name, pattern.search(line.message)) for name, pattern in _SIZES)
    return [(name, (real(m[1]) or 0.0) * _UNITS[m[2]], moment["when"]) for name, m in sizes if m]


def selection(line: Line) -> dict[str, str | None] | None:
    """Return which variant was taken for an operation, and why."""
    parts = _SELECT.match(line.message) if line.module == "KernelSelect" else None
    return parts.groupdict() if parts else None


def _performance(message: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, ms, tokens, rate in _PERF.findall(message):
        out[f"{name.lower()}_ms"] = real(ms)
        if tokens:
            out |= {"decoded_tokens": int(tokens[:18]), "decode_tokens_per_s": real(rate)}
    return {k: v for k, v in out.items() if v is not None}


def _metrics(message: str) -> dict[str, Any]:
    """Read key=value pairs; a bare or leading `tok/s` stands before all keys after it."""
    out, prefix = {}, ""
    for key, value, bare in _PAIR.findall(message):
        if name := _METRICS.get(f"{prefix}{key}".lower()):
            out[name] = _value(name, value)
        if "tok/s" in (key, bare):
            prefix = "tok/s "
    return {k: v for k, v in out.items() if v is not None}


def _value(key: str, text: str) -> Any:
    if key in ("prompt", "runs"):
        return text.strip('"')
    value = number(text.removesuffix("ms"))
    if value is None:
        return None
    return int(value) if key.endswith("tokens") and abs(value) < 1 << 62 else float(value)


def _outcome(message: str) -> dict[str, Any]:
    pairs = {key: value for key, value, _ in _PAIR.findall(message) if key}
    suite = message.split(" ")[0]
    out = {"suite": suite if "=" not in suite else None, "model": pairs.get("model")}
    return {k: v for k, v in out.items() if v}
