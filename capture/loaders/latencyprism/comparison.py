"""LatencyPrism's comparison of a normal and an abnormal run: the Markdown report and the CSV beside it.

Read: strict, cross and exploratory reports, as one run a side. Not read: the prose of the findings. Times are
derived from shares of a cycle and labelled as such.
LatencyPrism: https://github.com/kunluninsight/LatencyPrism
"""

import re
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders.latencyprism.report_text import Pair, Table, csv_pairs, markdown_pairs
from capture.loaders.latencyprism.vocabulary import header_of, role_columns, role_of, type_of, unit_of
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT: Final = "latencyprism"
PRODUCER: Final = "LatencyPrism DeepDive, compare_perf_data.py"
HOWTO: Final = "python compare_perf_data.py of LatencyPrism's DeepDive; it writes a .md and a .csv"

_TITLE: Final = re.compile(
    r"^# (?P<form>Cross|Strict|Exploratory) Performance Comparison(?: Report|:)(?P<subject>.*)$", re.MULTILINE
)
_HEADER: Final = ["function name", "metric name", "device", "suspicion score"]
_PID: Final = re.compile(r"pid[:_ ]*(\d{1,18})", re.IGNORECASE)
_FAR: Final = 5  # a factor between cycle counts that no change of speed explains

TIMES: Final = (
    "times: the printed share of a cycle, times the mean cycle; so the time within one cycle, not a total"
)


def sniff(head: Head) -> bool:
    return bool(_TITLE.match(head.start)) or header_of(head.start)[:4] == _HEADER


def load(source: Source) -> list[Run]:
    text, log = source.text().lstrip(), source.log
    title = _TITLE.match(text)
    if title is None:
        log.note(
            "no_cycles", "the CSV tells neither how many cycles stand behind a side nor how long they took"
        )
        return _runs(csv_pairs(text, log), {}, {}, log)
    meta: dict[str, Any] = {"report": title["form"].lower(), "subject": title["subject"].strip(" :")}
    if title["form"] != "Exploratory" and not re.search(r"^#+ .*Legend", text, re.MULTILINE):
        log.note("no_legend", "the report ends before its legend, so it is cut", severity="data_loss")
        meta["truncated"] = True
    pairs, others = markdown_pairs(text, log)
    return _runs(pairs, meta, {_table_name(t): _frame(t) for t in others}, log)


def _runs(pairs: list[Pair], meta: dict[str, Any], others: dict[str, pl.DataFrame], log: Log) -> list[Run]:
    runs = [_run(pair, side, meta, others, log) for pair in pairs for side in (0, 1)]
    return [with_log(run, log) for run in runs]


def _run(pair: Pair, side: int, shared: dict[str, Any], others: dict[str, pl.DataFrame], log: Log) -> Run:
    name, letter = pair.names[side], "ab"[side]
    meta = {**shared, "side": letter, "sides": list(pair.names), "headings": pair.headings}
    meta |= {"cycles": pair.cycles[side], "mean_cycle_ns": pair.mean_ns[side]}
    meta["pid"] = _pid(name, str(shared.get("subject", "")))
    if reasons := _obstacles(pair):
        meta["comparable"] = {"ok": False, "reasons": reasons}
        if side == 0:
            log.note("not_comparable", f"the two runs cannot be compared: {'; '.join(reasons)}")
    compared = pair.comparison
    frame = pl.concat(
        [_cycle(pair, letter), *_measured(compared, letter, pair.mean_ns[side]), _findings(pair)],
        how="diagonal_relaxed",
    )
    if pair.mean_ns[side] is not None:
        meta["guess"] = [TIMES]
    tables = {**others, "comparison": compared}
    if pair.ranks:
        tables["cycles"] = pl.DataFrame(pair.ranks, dict.fromkeys(("rank", "dur_a_ns", "dur_b_ns"), pl.Int64))
    return build(name, {k: v for k, v in meta.items() if v is not None}, frame, log, tables)


def _pid(name: str, subject: str) -> int | None:
    """Return the process id, from the run's own name, else from a title of a single process."""
    own, all_of_title = _PID.search(name), _PID.findall(subject)
    if own:
        return int(own[1])
    return int(all_of_title[0]) if len(set(all_of_title)) == 1 else None


def _obstacles(pair: Pair) -> list[str]:
    """Return why the report compares two different things."""
    a, b = pair.cycles
    if not a or not b or max(a, b) < _FAR * min(a, b):
        return []
    reasons = [f"{a} cycles against {b}: {max(a, b) / min(a, b):.0f} times as many"]
    mean_a, mean_b = pair.mean_ns
    if mean_a and mean_b and max(mean_a, mean_b) >= _FAR * min(mean_a, mean_b):
        reasons.append(
            f"a mean cycle of {mean_a / 1e6:,.1f} ms against {mean_b / 1e6:,.1f} ms: "
            "the two sides were probably cut at different anchors, which the report does not print"
        )
    return reasons


def _cycle(pair: Pair, letter: str) -> pl.DataFrame:
    """Return all cycles as one aggregate: the report ranks them and does not tell their order."""
    durations = [d for r in pair.ranks if (d := r[f"dur_{letter}_ns"]) is not None]
    if not durations:
        return pl.DataFrame()
    return pl.DataFrame(
        {
            "kind": "step", "lens": "wall", "name": "cycle", "count": len(durations),
            "dur": sum(durations), "min": min(durations), "max": max(durations),
        }
    )  # fmt: skip


def _measured(compared: pl.DataFrame, letter: str, mean_ns: int | None) -> list[pl.DataFrame]:
    """Return functions and metrics of one side."""
    there = compared.filter(~_absent(letter))
    return [*([] if mean_ns is None else [_functions(there, letter, mean_ns)]), _metrics(there, letter)]


def _absent(letter: str) -> pl.Expr:
    """Return the rows that one side never measured.

    They are printed as zeros, as are shares that round to nothing; but a side without samples is never
    significant, and z exists only where side a has several.
    """
    beta, mu = pl.col(f"beta_{letter}"), pl.col(f"mu_{letter}")
    other_mu = pl.col(f"mu_{'ba'['ab'.index(letter)]}")
    function = ("function", "device")
    share_is_printed = (beta != 0).any().over(function)
    nothing_at_all = ~(mu != 0).any().over(function)
    untested = (pl.col("p_beta") == 1) & (pl.col("u_beta") == 1)
    if letter == "a":
        untested &= pl.col("z_beta") == 0
    return (beta == 0) & (mu == 0) & untested & (share_is_printed | nothing_at_all | (other_mu != 0))


def _functions(there: pl.DataFrame, letter: str, mean_ns: int) -> pl.DataFrame:
    """Return one row a function, with the median of its shares, which differ a little by metric."""
    shares = there.group_by("function", "device", maintain_order=True).agg(pl.col(f"beta_{letter}").median())
    share = pl.col(f"beta_{letter}")
    roles = [role_of(type_of(f, d)) for f, d in shares.select("function", "device").rows()]
    return shares.select(
        *role_columns(roles),
        pl.col("function").alias("name"),
        pl.when(share != 0).then((share / 100 * mean_ns).round().cast(pl.Int64, strict=False)).alias("dur"),
        pl.col("device").alias("track"),
    )


def _metrics(there: pl.DataFrame, letter: str) -> pl.DataFrame:
    measured = there.filter(pl.col(f"mu_{letter}").is_not_null())
    units = [unit_of(m) for m in measured["metric"]]
    return measured.select(
        pl.lit("counter").alias("kind"),
        pl.col("metric").alias("name"),
        pl.col("device").alias("track"),
        pl.col("function").alias("path"),
        (pl.col(f"mu_{letter}") / pl.Series([u[1] for u in units], dtype=pl.Float64)).alias("value"),
        pl.Series("unit", [u[0] for u in units], dtype=pl.String),
    )


def _findings(pair: Pair) -> pl.DataFrame:
    if not pair.findings:
        return pl.DataFrame()
    return pl.DataFrame({"kind": "mark", "name": pair.findings, "path": "note"})


def _table_name(table: Table) -> str:
    return re.sub(r"^[\d.\s]+", "", table.heading).lower() or "table"


def _frame(table: Table) -> pl.DataFrame:
    """Return a table that is kept as printed."""
    width = len(table.cells)
    names = [f"{c} {i}" if c in table.cells[:i] else c for i, c in enumerate(table.cells)]
    rows = [(row + [""] * width)[:width] for _, row in table.rows]
    return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")
