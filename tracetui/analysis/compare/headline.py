"""Put a comparison into one line: the change that weighs most, the total, the counts of verdicts."""

from typing import Final

import polars as pl

from tracetui.analysis.compare.diff import Diff, weight

NUMBERED: Final = ("layer", "step")  # groupings whose rows are numbers
LONGEST: Final = 32  # letters of a name
NEARLY: Final = 0.2  # p of an undecided row that is worth a word
WORDS: Final = ("slower", "faster", "new", "gone", "same")


def headline(compared: Diff, group: str | None = None) -> str:
    """Return the line: the row to look at first, the whole, and how many rows changed."""
    doubt = "" if compared.comparable.ok else "NOT comparable"
    parts = (doubt, first(compared, group), _whole(compared), ", ".join(counts(compared)) or "no rows")
    return "; ".join(part for part in parts if part)


def counts(compared: Diff) -> list[str]:
    """Return how many rows got each verdict, in words."""
    words = compared.rows["verdict"].to_list()
    parts = [f"{words.count(w)} {w}" for w in WORDS if w in words]
    undecided = sum(w not in WORDS for w in words)
    return [*parts, f"{undecided} undecided"] if undecided else parts


def decided(compared: Diff) -> pl.DataFrame:
    """Return the rows that evidently changed, from the one that weighs most."""
    rows = compared.rows.filter(pl.col("verdict").is_in(["slower", "faster"]))
    return rows.sort(weight().abs(), "name", descending=[True, False])


def first(compared: Diff, group: str | None = None) -> str:
    """Return the decided row that weighs most, in words; that there is none where rows could be judged."""
    rows = decided(compared)
    if not rows.height:
        return (
            f"no row evidently changed{_nearest(compared)}" if compared.rows["p"].is_not_null().any() else ""
        )
    row = rows.row(0, named=True)
    before = row["median_a_ns"]
    change = f" {row['median_delta_ns'] / before:+.1%}" if before else ""
    where = f" in {row['phase']}" if row["phase"] else ""
    what = f"{group} " if group in NUMBERED else ""
    return f"{what}{_brief(row['name'])} {row['verdict']}{change}{where}"


def _brief(name: str) -> str:
    """Return both ends of a long name."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half:]}"


def _nearest(compared: Diff) -> str:
    """Return the undecided row with the most evidence, in words; empty where that is little."""
    near = compared.rows.filter(
        (pl.col("verdict") == "~") & (pl.col("p_adjusted") < NEARLY) & (pl.col("median_a_ns") > 0)
    )
    for row in near.sort("p_adjusted", "name").head(1).iter_rows(named=True):
        change = row["median_delta_ns"] / row["median_a_ns"]
        return f", nearest {_brief(row['name'])} {change:+.1%} (p {row['p_adjusted']:.2g})"
    return ""


def _whole(compared: Diff) -> str:
    before, after = int(compared.rows["total_a_ns"].sum()), int(compared.rows["total_b_ns"].sum())
    return f"total {after / before - 1:+.1%}" if before else ""
