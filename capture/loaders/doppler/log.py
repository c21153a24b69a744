"""Doppler's harness log: GPU profile reports between the lines of a WebGPU run.

Read: profile blocks of prefill and decode, figures of the run, memory lines, kernel selections; with the
browser's prefix or without. Not read: other log lines. Blocks have no times of single kernels, so steps have
a place on the timeline and kernels have not.
Doppler: https://github.com/clocksmith/doppler
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._numbers import MILLISECOND, exact, nanoseconds, number
from capture.loaders._rows import frame_of
from capture.loaders.doppler.lines import Line, facts, memory, parse, selection
from capture.loaders.doppler.profile_blocks import NO_LAUNCHES, SCHEMA, Block, Clock, events, is_whole, totals
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT: Final = "doppler"
PRODUCER: Final = "the Doppler WebGPU engine's test harness"
HOWTO: Final = "run a Doppler suite with the GPU profiler on and keep what it prints"

_SNIFF: Final = re.compile(r"^\[browser:\w+\] |GPU Profile Report", re.MULTILINE)
_TITLE: Final = re.compile(
    r"(?:(?P<prefill>Prefill)(?: \([^)]*\))?|Batch decode \(N=(?P<batch>\d{1,9})\)|"
    r"Decode step (?P<step>\d{1,9})|[^:]+?)(?P<layers> \(layers only\))?:$"
)
_REPORT: Final = "GPU Profile Report"
_FRAME: Final = ("─", "Kernel ")
_NEW_LAUNCH: Final = re.compile(r"^\[progress\].*\blaunching\b")
_ROUNDING_NS: Final = 5_000  # half of the last printed digit of a row
_ENVIRONMENT: Final = (
    "model", "device", "device_memory", "dtype", "kernel_path", "vocabulary",
    "layers", "hidden", "heads", "head_dim",
)  # fmt: skip


@dataclass
class Draft:
    """What the log tells of one run."""

    meta: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    selections: list[dict[str, str | None]] = field(default_factory=list)
    closed: bool = False  # its closing figures were seen

    @property
    def empty(self) -> bool:
        return not (self.blocks or self.rows)


def sniff(head: Head) -> bool:
    return not head.start.startswith(("{", "<")) and bool(_SNIFF.search(head.text))


def load(source: Source) -> list[Run]:
    log = source.log
    runs = [_run(d, i, log) for i, d in enumerate(_drafts(source.text(), log)) if not d.empty]
    return [with_log(run, log) for run in runs]


def _drafts(text: str, log: Log) -> Iterator[Draft]:
    draft, title, block, at = Draft(), "", None, 0
    for raw in text.split("\n"):
        if block is not None and raw and not raw.startswith("["):
            block = _continue(block, raw, log, at)
        elif raw.startswith("["):
            line = parse(raw)
            if _starts_another(draft, line, raw):
                yield draft
                draft = _after(draft, line)
            if line.message == _REPORT:
                block = _open(draft, title, line)
            elif line.module == "Profile" and _TITLE.match(line.message):
                title, block = line.message, None
            else:
                _note(draft, line, log)
        at += len(raw) + 1
    yield draft


def _starts_another(draft: Draft, line: Line, raw: str) -> bool:
    """Return whether a line starts another run: a launch, a load, or a prefill after decoding or the end."""
    if not draft.blocks:
        return False
    if line.module == "Profile" and line.message.startswith("Prefill"):
        return draft.closed or draft.blocks[-1].phase == "decode"
    return bool(_NEW_LAUNCH.match(raw)) or (line.module == "Loader" and line.message.startswith("Loading:"))


def _after(draft: Draft, line: Line) -> Draft:
    """Return the next run; the same page repeats neither its device nor its kernel selections."""
    if line.module != "Profile":
        return Draft()
    return Draft({k: draft.meta[k] for k in _ENVIRONMENT if k in draft.meta}, [], [], draft.selections)


def _open(draft: Draft, title: str, line: Line) -> Block:
    heading = _TITLE.match(title)
    phase, tokens, position, again = None, None, None, False
    if heading and heading["prefill"]:
        phase, again = "prefill", bool(draft.blocks) and draft.blocks[-1].phase == "prefill"
    elif heading and (heading["batch"] or heading["step"]):
        phase, tokens = "decode", int(heading["batch"] or 1)
        position = int(heading["step"]) if heading["step"] else None
    if heading and heading["layers"]:
        draft.meta["layers_only"] = True
    block = Block(title.removesuffix(":") or _REPORT, phase, tokens, position, line.t, part_of_last=again)
    draft.blocks.append(block)
    return block


def _continue(block: Block, raw: str, log: Log, at: int) -> Block | None:
    """Return the next line of a report; None once its total is read."""
    if raw.startswith(_FRAME):
        return block
    log.read += 1
    parts = raw.rsplit(None, 2)
    dur = nanoseconds(parts[1], MILLISECOND) if len(parts) == 3 else None
    if dur is None:
        log.drop("bad_row", "lines of a report that hold no label and time", at=at)
    elif parts[0] == "TOTAL":
        block.total = dur
        return None
    else:
        block.rows.append((parts[0], dur))
    return block


def _note(draft: Draft, line: Line, log: Log) -> None:
    """Keep what a line outside the reports states; count it when that is nothing."""
    stated = facts(line)
    draft.meta |= stated
    draft.closed |= line.module in ("Perf", "Benchmark", "ok", "metrics")
    sizes = memory(line)
    draft.rows += [
        {"kind": "memory", "name": name, "t": line.t, "bytes": size, "path": when}
        for name, size, when in sizes
    ]
    if chosen := selection(line):
        draft.selections = [*draft.selections, chosen]
    if line.path:
        draft.rows.append({"kind": "mark", "name": line.message, "t": line.t, "path": line.path})
    if stated or sizes or line.path:
        log.read += 1
    elif line.message:
        log.note("other_lines", "lines of mere progress, not kept")


def _run(draft: Draft, index: int, log: Log) -> Run:
    clock = _clock(draft.meta)
    rows, guesses = events(draft.blocks, clock)
    _check(draft, clock, log)
    meta: dict[str, Any] = {**draft.meta, **totals(draft.blocks), "profiled": bool(draft.blocks)}
    if any(r["kind"] == "memory" for r in draft.rows):
        guesses.append("sizes: printed with few digits, 1 GB taken as 2^30 bytes")
    if guesses:
        meta["guess"] = guesses
    frame = frame_of(rows + draft.rows, SCHEMA, log)
    name = str(meta.get("model", "doppler")) + (f" #{index + 1}" if index else "")
    return build(name, meta, frame, log, _tables(draft))


def _clock(meta: dict[str, Any]) -> Clock:
    """Return the run's own figures; [Perf] tells the decoded tokens, [metrics] counts the first one too."""
    decoded = meta.get("decoded_tokens")
    if decoded is None and meta.get("tokens"):
        decoded = meta["tokens"] - 1
    times = {
        k: exact(number(str(meta.get(f"{k}_ms", ""))), MILLISECOND) for k in ("ttft", "prefill", "decode")
    }
    return Clock(prompt_tokens=meta.get("prompt_tokens"), decoded=decoded, **times)


def _check(draft: Draft, clock: Clock, log: Log) -> None:
    """Note what the reports themselves show to be missing."""
    if not draft.blocks:
        return
    log.note("no_launches", NO_LAUNCHES)
    if not is_whole(draft.blocks, clock):
        message = "decoded tokens without a report: the log is cut or the profiler skips steps"
        log.note("steps_missing", message, severity="data_loss")
    for block in draft.blocks:
        if block.total is None:
            draft.meta["truncated"] = True
            log.note("report_cut", "reports without their total: they are cut", severity="data_loss")
        elif abs(sum(dur for _, dur in block.rows) - block.total) > _ROUNDING_NS * (len(block.rows) + 1):
            log.note("rows_missing", "reports whose rows do not add up to their total", severity="data_loss")
    if not draft.closed:
        draft.meta["truncated"] = True
        log.note("no_end", "the log ends before the run's closing figures", severity="data_loss")


def _tables(draft: Draft) -> dict[str, pl.DataFrame]:
    tables = {}
    if draft.blocks:
        columns = {
            "title": [b.title for b in draft.blocks],
            "tokens": pl.Series([b.tokens for b in draft.blocks], dtype=pl.Int64),
            "printed_ns": pl.Series([b.t for b in draft.blocks], dtype=pl.Int64),
            "total_ns": pl.Series([b.total for b in draft.blocks], dtype=pl.Int64),
            "rows": [len(b.rows) for b in draft.blocks],
        }
        tables["reports"] = pl.DataFrame(columns)
    if draft.selections:
        tables["selections"] = pl.DataFrame(
            draft.selections, dict.fromkeys(("op", "variant", "reason"), pl.String)
        )
    return tables
