"""The board of figures: each finds its numbers in what its benchmark prints, and judges them."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.bench import _board
from tests.bench._figures import BENCHES, FIGURES, Bench, Figure, found

# As the benchmarks print it, by hand.
TABLES = "plain    1,000,000 rows,   52 MB:  0.412 s,  0.41 µs a row; polars  0.103 s,  4.00x of it; …"
CHROME = """
as torch prints it: 1067 MB, 1,079,676 kernels
                             s    MB/s   cpu s   ratio   peak MB  peak/file
ours                     1.230     867    2.20    1.00       800       0.79
ours, gz                 2.900     368    3.00    2.36       900       0.88
msgspec into polars      4.860     219    4.80    3.95      2000       1.97

compact: 46 MB, 46,000 kernels
                             s    MB/s   cpu s   ratio   peak MB  peak/file
ours                     0.170     270    0.20    1.00       200       4.56
msgspec into polars      0.221     208    0.22    1.30       300       6.84
"""
METALLIC = """5,000,000 events, 1365 MB, medians of 3
tracetui      1.820 s     750 MB/s  cpu   3.400 s    1.00x the time,   1.00x the cpu of tracetui
polars        2.600 s     525 MB/s  cpu   5.100 s    1.43x the time,   1.50x the cpu of tracetui
"""
LIVE = """view, steps before             of a core         memory       seen       95 %  caught up
kernels, 100              5.9 %  1.00×    152 MB  1.00×     141 ms     231 ms      0.8 s      4.0 k/s
kernels, 36,000           6.1 %  1.03×    155 MB  1.02×     144 ms     248 ms      1.9 s      4.0 k/s
"""


def figures(bench: str) -> dict[str, Figure]:
    return {figure.what: figure for figure in FIGURES if figure.bench == bench}


def test_numbers_are_found_where_a_benchmark_prints_them() -> None:
    plain = figures("tables")["plain, CSV of 1 M rows"].measured(TABLES)
    assert (plain.own, plain.peer, plain.verdict) == (0.412, 0.103, "pass")
    chrome = figures("chrome")
    whole = chrome["Chrome trace of 1 GB"].measured(CHROME)
    assert (whole.own, whole.peer, whole.verdict) == (867, 219, "pass")
    assert chrome["Chrome trace of 1 GB"].measured(CHROME.replace(" 867 ", " 650 ")).verdict == "FAIL"
    assert chrome["its peak memory, of the file"].measured(CHROME).own == 0.79
    compact = chrome["Chrome trace, compact"].measured(CHROME)
    assert (compact.own, compact.peer, compact.verdict) == (0.170, 0.221, "pass")
    assert chrome["Chrome trace, indented"].measured(CHROME).verdict == "not run"
    live = figures("live")
    actual = {what: live[what].measured(LIVE).own for what in live}
    assert list(actual.values()) == [6.1, 248, 1.03]


def test_a_figure_is_judged_by_its_peer_where_there_is_one() -> None:
    (metallic,) = figures("metallic, large").values()
    assert metallic.measured(METALLIC).verdict == "pass"
    assert metallic.measured(METALLIC.replace("2.600", "2.599")).verdict == "FAIL"
    alone = metallic.measured("\n".join(METALLIC.splitlines()[:2]))
    assert (alone.own, alone.verdict) == (1.82, "no peer")
    assert _board.beside(alone) == "polars scan_ndjson: not here"
    assert metallic.measured("given up after 240 s").verdict == "not run"


def test_a_slower_machine_has_more_time() -> None:
    seen = figures("live")["a step is seen, 95 of 100"]
    late = LIVE.replace("248 ms", "795 ms")
    assert [seen.measured(late, slowness).verdict for slowness in (1, 2)] == ["FAIL", "pass"]
    assert _board.must(seen.measured(late, 2)) == "≤ 800 ms"
    assert _board.beside(seen.measured(late, 2)) == "400 ms, and this machine is 2.00× as slow"


def test_commas_and_lines_that_only_look_alike() -> None:
    assert (
        found(r"^cursor move +# bytes", "cursor move over the edge  9 bytes\ncursor move  1,538 bytes")
        == 1538
    )
    assert found(r"^idle second +# bytes", "help 3 bytes") is None


def test_every_figure_has_a_benchmark_that_is_there() -> None:
    assert {figure.bench for figure in FIGURES} == set(BENCHES)
    assert len({figure.what for figure in FIGURES}) == len(FIGURES)
    assert all(find_spec(bench.words[0]) for bench in BENCHES.values())
    assert sum(bench.seconds for bench in BENCHES.values()) < 60 * _board.MINUTES
    assert all(figure.own.count("#") == 1 for figure in FIGURES)
    assert not [figure.what for figure in FIGURES if figure.times and not figure.peer]
    timed = [figure for figure in FIGURES if figure.unit in ("s", "s CPU", "ms", "ns", "MB/s")]
    assert not [figure.what for figure in timed if not figure.times and not figure.scaled]


@pytest.mark.slow
def test_what_fails_or_has_no_time_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "says.py").write_text("print('took 7 s')")
    (tmp_path / "fails.py").write_text("raise SystemExit('there is none')")
    (tmp_path / "hangs.py").write_text("print('took 9 s', flush=True)\nwhile True: pass")
    monkeypatch.setattr(_board, "ROOT", tmp_path)
    names = {"says": 20, "fails": 20, "hangs": 1, "long": 4000}
    monkeypatch.setattr(_board, "BENCHES", {name: Bench((name,), s) for name, s in names.items()})
    made = [Figure(name, name, "took # s", 8) for name in names]
    monkeypatch.setattr(_board, "FIGURES", made)
    actual = _board.run(list(names), 5)
    assert [one.verdict for one in actual] == ["pass", "not run", "FAIL", "not run"]
    printed = capsys.readouterr().out
    for words in ("it failed: there is none", "given up after 3 s", "left out: it takes 4000 s"):
        assert words in printed
    assert _board.board(actual).splitlines()[-1] == "1 pass, 1 FAIL, 2 not run"
    assert f"Python {sys.version.split()[0]}" in _board.heading()
