"""`tracetui trend [ROW]`: how the rows of a log changed from run to run, and an alarm for CI."""

from argparse import ArgumentParser, Namespace
from typing import Final

from tracetui.verbs import _options, log

ORDERS: Final = ("commit", "time", "version", "batch")


def options(parser: ArgumentParser) -> None:
    parser.add_argument("row", nargs="?", default="", help="names of rows, as a regular expression")
    log.add_log_option(parser)
    about = "order of the runs; those of one commit, version or batch are repeats (default: commit)"
    parser.add_argument("--by", choices=ORDERS, default="commit", help=about)
    parser.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="only runs with this tag"
    )
    parser.add_argument("--last", type=int, default=400, metavar="N", help="the newest runs (default: 400)")
    about = "exit with 1 if a row's own code is slower since one of the last runs"
    parser.add_argument("--fail-on", choices=("new",), help=about)
    about = "the last runs, in which a change is new (default: 10)"
    parser.add_argument("--recent", type=int, default=10, metavar="N", help=about)
    _options.add_options(parser, "--strict", "--sort", "--reverse", "--limit")
    _options.add_format_option(parser)
    _options.add_options(parser, "--width")


def run(args: Namespace) -> int:
    """Print the trend; return 0, or 1 under --fail-on new if a row became slower."""
    import polars as pl

    from capture.errors import UsageError
    from tracetui.history.part_index import choose_runs
    from tracetui.history.row_trends import compute_trend

    asked_log = log.open_log(args)
    tables = log.read_tables(asked_log, args.strict)
    runs = log.filter_tags(tables.runs, args.tag)
    if not runs.height:
        raise UsageError("no run to show", where=asked_log.label, todo="tracetui log add FILE…")
    chosen, notes = choose_runs(runs, args.by, args.last)
    answer = compute_trend(tables, chosen, args.row, args.recent)
    log.print_answer(args, "Trend", log.with_notes(answer, notes))
    if not args.fail_on:
        return 0
    slower = answer.rows.filter(pl.col("is_new") & (pl.col("what") == "code") & (pl.col("change_pct") > 0))
    for row in slower.iter_rows(named=True):
        where = f" in {row['phase']}" if row["phase"] else ""
        _options.print_status(
            f"slower: {row['row']} {row['change_pct']:+.1f}%{where} since {row['since']} (p {row['p']:.2g})"
        )
    return int(slower.height > 0)
