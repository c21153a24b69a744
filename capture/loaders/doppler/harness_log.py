"""Doppler's harness log: GPU profile reports between the log lines of a WebGPU run.

Read: profile blocks of prefill and decode, metrics of the run, memory lines, kernel selections; with or
without the browser's prefix. Not read: other log lines. Blocks contain no times of single kernels, so steps
are on the timeline and kernels are not.
Doppler: https://github.com/clocksmith/doppler
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._json_document import to_integer
from capture.loaders._typed_cells import (
    MILLISECOND,
    build_frame,
    parse_decimal,
    parse_float,
    parse_nanoseconds,
    scale_to_integer,
)
from capture.loaders.doppler.profile_blocks import (
    EVENT_SCHEMA,
    NO_LAUNCHES,
    ProfileBlock,
    RunTotals,
    build_events,
    has_all_tokens,
    sum_totals_by_phase,
)
from capture.run import Run, build_run, with_log
from capture.source import Head, Source

FORMAT: Final = "doppler"
PRODUCER: Final = "the Doppler WebGPU engine's test harness"
HOWTO: Final = "run a Doppler suite with the GPU profiler on and save what it prints"
_SNIFF: Final = re.compile(r"^\[browser:\w+\] |GPU Profile Report", re.MULTILINE)
_TITLE: Final = re.compile(
    r"(?:(?P<prefill>Prefill)(?: \([^)]*\))?|Batch decode \(N=(?P<batch>\d{1,9})\)|"
    r"Decode step (?P<step>\d{1,9})|[^:]+?)(?P<layers> \(layers only\))?:$"
)
_REPORT: Final = "GPU Profile Report"
_FRAME: Final = ("─", "Kernel ")
_NEW_LAUNCH: Final = re.compile(r"^\[progress\].*\blaunching\b")
_ROUNDING_NS: Final = 5_000  # half of the last printed digit of a row
_ENVIRONMENT: Final[tuple[str, ...]] = (
    "model", "device", "device_memory", "dtype", "kernel_path", "vocabulary",
    "layers", "hidden", "heads", "head_dim",
)  # fmt: skip
_LINE: Final = re.compile(
    r"(?:\[browser:(\w+)\] ?)?(?:\[(\d+(?:\.\d+)?)ms\] ?)?(?:\[([A-Za-z][\w.-]*)\] ?)?(.*)"
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
_METRIC_MODULES: Final = ("Perf", "Benchmark", "metrics")
_MARK_PATHS: Final = {"KernelSelect": "selection", **dict.fromkeys(_METRIC_MODULES, "metric")}
_LOG_TYPES: Final = ("warning", "error")


@dataclass
class RunDraft:
    """What the log reports of one run, while it is read."""

    meta: dict[str, Any] = field(default_factory=dict)
    blocks: list[ProfileBlock] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    selections: list[dict[str, str | None]] = field(default_factory=list)
    is_closed: bool = False  # its final metrics were read


@dataclass(frozen=True)
class LogLine:
    """A parsed log line."""

    module: str
    message: str
    type: str
    t: int | None

    @property
    def path(self) -> str | None:
        """Class of a line that is kept as text; None for a progress message."""
        if self.module in _MARK_PATHS:
            return _MARK_PATHS[self.module]
        if "KernelPath:" in self.message:
            return "selection"
        return "log" if self.module == "ok" or self.type in _LOG_TYPES else None


def sniff(head: Head) -> bool:
    return not head.stripped_text.startswith(("{", "<")) and bool(_SNIFF.search(head.text))


def load(source: Source) -> list[Run]:
    log = source.log
    drafts = enumerate(_iter_drafts(source.read_text(), log))
    runs = [_build_run(draft, index, log) for index, draft in drafts if draft.blocks or draft.rows]
    return [with_log(run, log) for run in runs]


def _iter_drafts(text: str, log: Log) -> Iterator[RunDraft]:
    draft, title, block, offset = RunDraft(), "", None, 0
    for raw in text.split("\n"):
        if block is not None and raw and not raw.startswith("["):
            block = _read_block_line(block, raw, log, offset)
        elif raw.startswith("["):
            line = _parse_log_line(raw)
            if _is_run_start(draft, line, raw):
                yield draft
                draft = _build_next_draft(draft, line)
            if line.message == _REPORT:
                block = _open_block(draft, title, line)
            elif line.module == "Profile" and _TITLE.match(line.message):
                title, block = line.message, None
            else:
                _add_line(draft, line, log)
        offset += len(raw) + 1
    yield draft


def _is_run_start(draft: RunDraft, line: LogLine, raw: str) -> bool:
    """Return True for the first line of another run: a launch, a load, or a prefill after decoding."""
    if not draft.blocks:
        return False
    if line.module == "Profile" and line.message.startswith("Prefill"):
        return draft.is_closed or draft.blocks[-1].phase == "decode"
    return bool(_NEW_LAUNCH.match(raw)) or (line.module == "Loader" and line.message.startswith("Loading:"))


def _build_next_draft(draft: RunDraft, line: LogLine) -> RunDraft:
    """Start the next run; the same page repeats neither its device nor its kernel selections."""
    if line.module != "Profile":
        return RunDraft()
    meta = {key: draft.meta[key] for key in _ENVIRONMENT if key in draft.meta}
    return RunDraft(meta, selections=draft.selections)


def _open_block(draft: RunDraft, title: str, line: LogLine) -> ProfileBlock:
    block = ProfileBlock(title.removesuffix(":") or _REPORT, t=line.t)
    heading = _TITLE.match(title)
    if heading and heading["prefill"]:
        block.phase = "prefill"
        block.is_continuation = bool(draft.blocks) and draft.blocks[-1].phase == "prefill"
    elif heading and (heading["batch"] or heading["step"]):
        block.phase, block.tokens = "decode", int(heading["batch"] or 1)
        block.position = int(heading["step"]) if heading["step"] else None
    if heading and heading["layers"]:
        draft.meta["layers_only"] = True
    draft.blocks.append(block)
    return block


def _read_block_line(block: ProfileBlock, raw: str, log: Log, offset: int) -> ProfileBlock | None:
    """Read the next line of a block; return the block, or None once its total is read."""
    if raw.startswith(_FRAME):
        return block
    log.read += 1
    parts = raw.rsplit(None, 2)
    dur = parse_nanoseconds(parts[1], MILLISECOND) if len(parts) == 3 else None
    if dur is None:
        log.drop("bad_row", "lines of a report without a label and a time", at=offset)
    elif parts[0] == "TOTAL":
        block.total = dur
        return None
    else:
        block.rows.append((parts[0], dur))
    return block


def _add_line(draft: RunDraft, line: LogLine, log: Log) -> None:
    """Add what a line outside the blocks reports; note lines that report nothing."""
    facts = _parse_facts(line)
    draft.meta |= facts
    draft.is_closed |= line.module in ("Perf", "Benchmark", "ok", "metrics")
    sizes = _parse_memory_sizes(line)
    row = {"kind": "memory", "t": line.t}
    draft.rows += [{**row, "name": name, "bytes": size, "path": occasion} for name, size, occasion in sizes]
    if line.module == "KernelSelect" and (choice := _SELECT.match(line.message)):
        draft.selections = [*draft.selections, choice.groupdict()]
    if line.path:
        draft.rows.append({"kind": "mark", "name": line.message, "t": line.t, "path": line.path})
    if facts or sizes or line.path:
        log.read += 1
    elif line.message:
        log.note("other_lines", "progress messages, not kept")


def _build_run(draft: RunDraft, index: int, log: Log) -> Run:
    run_totals = _build_run_totals(draft.meta)
    rows, guesses = build_events(draft.blocks, run_totals)
    _note_missing(draft, run_totals, log)
    meta: dict[str, Any] = {**draft.meta, **sum_totals_by_phase(draft.blocks), "profiled": bool(draft.blocks)}
    if any(row["kind"] == "memory" for row in draft.rows):
        guesses.append("sizes: printed with few digits; 1 GB is taken as 2^30 bytes")
    if guesses:
        meta["guess"] = guesses
    frame = build_frame(rows + draft.rows, EVENT_SCHEMA, log)
    name = str(meta.get("model", "doppler")) + (f" #{index + 1}" if index else "")
    return build_run(name, meta, frame, log, _build_tables(draft))


def _build_run_totals(meta: dict[str, Any]) -> RunTotals:
    """Collect the run's own totals; [Perf] counts the decoded tokens, [metrics] also the first token."""
    decoded = meta.get("decoded_tokens")
    if decoded is None and meta.get("tokens"):
        decoded = meta["tokens"] - 1
    times = {
        name: scale_to_integer(parse_decimal(str(meta.get(f"{name}_ms", ""))), MILLISECOND)
        for name in ("ttft", "prefill", "decode")
    }
    return RunTotals(prompt_tokens=meta.get("prompt_tokens"), decoded=decoded, **times)


def _note_missing(draft: RunDraft, run_totals: RunTotals, log: Log) -> None:
    if not draft.blocks:
        return
    log.note("no_launches", NO_LAUNCHES)
    if not has_all_tokens(draft.blocks, run_totals):
        message = "decoded tokens without a report: the log is cut or the profiler skips steps"
        log.note("steps_missing", message, severity="data_loss")
    for block in draft.blocks:
        if block.total is None:
            draft.meta["truncated"] = True
            log.note("report_cut", "reports without their total, so they are cut", severity="data_loss")
        elif abs(sum(dur for _, dur in block.rows) - block.total) > _ROUNDING_NS * (len(block.rows) + 1):
            log.note("rows_missing", "reports whose rows do not add up to their total", severity="data_loss")
    if not draft.is_closed:
        draft.meta["truncated"] = True
        log.note("no_end", "the log ends before the run's final metrics", severity="data_loss")


def _build_tables(draft: RunDraft) -> dict[str, pl.DataFrame]:
    tables = {}
    if draft.blocks:
        schema = {"title": pl.String} | dict.fromkeys(("tokens", "printed_ns", "total_ns", "rows"), pl.Int64)
        rows = [(block.title, block.tokens, block.t, block.total, len(block.rows)) for block in draft.blocks]
        tables["reports"] = pl.DataFrame(rows, schema, orient="row")
    if draft.selections:
        columns = dict.fromkeys(("op", "variant", "reason"), pl.String)
        tables["selections"] = pl.DataFrame(draft.selections, columns)
    return tables


def _parse_log_line(text: str) -> LogLine:
    """Parse type, time, module and message of a log line; missing ones are empty."""
    type, ms, module, message = _LINE.findall(text)[0]
    return LogLine(module, message, type, parse_nanoseconds(ms, MILLISECOND))


def _parse_facts(line: LogLine) -> dict[str, Any]:
    """Parse what a line reports of the whole run, as metadata; integers as numbers."""
    if line.module in ("Perf", "Benchmark"):
        return _parse_performance(line.message)
    if line.module == "metrics":
        return _parse_metrics(line.message)
    if line.module == "ok":
        return _parse_outcome(line.message)
    if shape := _SHAPE.search(line.message):
        sizes = {key: to_integer(digits) for key, digits in shape.groupdict().items()}
        return {key: size for key, size in sizes.items() if size is not None}
    return _parse_other_facts(line)


def _parse_other_facts(line: LogLine) -> dict[str, Any]:
    matches = ((key, pattern.search(line.message)) for mod, key, pattern in _FACTS if mod == line.module)
    texts = {key: match[1].strip() for key, match in matches if match}
    return {key: text if (value := to_integer(text)) is None else value for key, text in texts.items()}


def _parse_memory_sizes(line: LogLine) -> list[tuple[str, float, str]]:
    """Parse the sizes in a memory line of the loader: name, bytes, occasion."""
    occasion = _MEMORY.search(line.message) if line.module == "Loader" else None
    if occasion is None:
        return []
    sizes = ((name, pattern.search(line.message)) for name, pattern in _SIZES)
    return [(name, (parse_float(m[1]) or 0.0) * _UNITS[m[2]], occasion["when"]) for name, m in sizes if m]


def _parse_performance(message: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, ms, tokens, rate in _PERF.findall(message):
        facts[f"{name.lower()}_ms"] = parse_float(ms)
        if tokens:
            facts |= {"decoded_tokens": int(tokens[:18]), "decode_tokens_per_s": parse_float(rate)}
    return {k: v for k, v in facts.items() if v is not None}


def _parse_metrics(message: str) -> dict[str, Any]:
    """Parse key=value pairs; a bare or leading `tok/s` prefixes all keys after it."""
    metrics, prefix = {}, ""
    for key, value, bare in _PAIR.findall(message):
        if name := _METRICS.get(f"{prefix}{key}".lower()):
            metrics[name] = _parse_metric(name, value)
        if "tok/s" in (key, bare):
            prefix = "tok/s "
    return {k: v for k, v in metrics.items() if v is not None}


def _parse_metric(key: str, text: str) -> Any:
    if key in ("prompt", "runs"):
        return text.strip('"')
    value = parse_decimal(text.removesuffix("ms"))
    if value is None:
        return None
    return int(value) if key.endswith("tokens") and abs(value) < 1 << 62 else float(value)


def _parse_outcome(message: str) -> dict[str, Any]:
    pairs = {key: value for key, value, _ in _PAIR.findall(message) if key}
    suite = message.split(" ")[0]
    outcome = {"suite": suite if "=" not in suite else None, "model": pairs.get("model")}
    return {k: v for k, v in outcome.items() if v}
