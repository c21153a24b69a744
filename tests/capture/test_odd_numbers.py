"""Numbers that no producer should write: each costs at most its own cell, and what it costs is counted."""

import re
import traceback
from pathlib import Path
from typing import Final

import pytest

from capture.errors import CaptureError, UnforeseenError
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from tests.conftest import FIXTURES
from tests.fuzz.corpus import NO_LOADER, by_loader, seeds

MANY: Final = "9" * 5001  # digits, more than Python turns into an integer
ODD: Final = (MANY, "²", "1e999")
TEXTS: Final = ("json", "lines", "table", "text")
PLACES: Final = 12  # of a file, each behind other words than the others
FILES: Final = 1  # of a loader, the smallest


@pytest.mark.slow
def test_no_number_of_any_format_is_one_that_its_loader_was_not_written_for(tmp_path: Path) -> None:
    faults = set()
    tried = 0
    for loader, own in by_loader(seeds(samples=False)).items():
        texts = [s for s in own if s.kind in TEXTS and loader != NO_LOADER]
        for seed in sorted(texts, key=lambda seed: len(seed.content))[:FILES]:
            path = tmp_path / f"odd{seed.suffix}"
            for begin, end in places(seed.content):
                for odd in ODD:
                    path.write_bytes(seed.content[:begin] + odd.encode() + seed.content[end:])
                    tried += 1
                    try:
                        load(path, cache=False, capture=NO_CAPTURE)
                    except UnforeseenError as e:
                        assert e.__cause__ is not None
                        where = traceback.extract_tb(e.__cause__.__traceback__)[-1]
                        faults.add(f"{seed.name}: {odd[:5]} in {where.filename}:{where.lineno}")
                    except CaptureError as e:
                        assert "digits" not in str(e)  # a sentence of Python's
    assert not faults
    assert tried > 400


def places(content: bytes) -> list[tuple[int, int]]:
    """Return where numbers stand in a text, one behind each kind of words."""
    found: dict[bytes, tuple[int, int]] = {}
    for match in re.finditer(rb"\d+(?:\.\d+)?", content):
        before = re.sub(rb"\d+", b"0", content[max(0, match.start() - 14) : match.start()])
        found.setdefault(before, match.span())
    return list(found.values())[:PLACES]


NATIVE: Final = """\
{"kind":"run","schema":1,"name":"x","meta":{}}
{"kind":"kernel","name":"k","t":1,"dur":5,"flops":ODD}
{"kind":"memory","name":"m","t":1,"bytes":ODD}
{"kind":"counter","name":"c","t":1,"value":ODD}
{"kind":"counter","name":"c","t":2,"value":3}
"""
CHROME: Final = """\
{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":5},
{"ph":"i","name":"[memory]","pid":0,"ts":1,"args":{"Device Id":ODD,"Total Allocated":ODD}},
{"ph":"C","name":"c","pid":0,"ts":1,"args":{"v":ODD}},
{"ph":"C","name":"c","pid":0,"ts":2,"args":{"v":3}}]}
"""


@pytest.mark.parametrize("odd", ["1e308", "-1e31", "9" * 40, "9" * 400, "1e999", "-1e999", MANY])
@pytest.mark.parametrize("text", [NATIVE, CHROME], ids=["native", "chrome"])
def test_a_figure_that_cannot_be_is_left_out_and_counted(tmp_path: Path, text: str, odd: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text.replace("ODD", odd))
    (run,) = load(path, cache=False, capture=NO_CAPTURE)
    columns = [c for c in ("value", "bytes", "flops") if run.has(c)]
    figures = [v for c in columns for v in run.events[c].to_list() if v is not None]
    assert figures == [3.0]
    lost = {n.id: n.count for n in run.log.notices if n.id in ("bad_figure", "bad_line", "bad_event")}
    assert sum(lost.values()) == (3 if text is NATIVE else 2)


@pytest.mark.parametrize("fine", ["1e30", "-1e30", "0", "1e-300"])
def test_the_largest_figure_is_kept(tmp_path: Path, fine: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(NATIVE.replace("ODD", fine))
    (run,) = load(path, cache=False)
    assert run.events["value"].to_list() == [None, None, float(fine), 3.0]
    assert not run.log.repaired and not run.log.dropped


def test_a_size_of_a_model_that_is_none_is_left_out(tmp_path: Path) -> None:
    text = (FIXTURES / "cs336" / "four_models.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| small"))
    first = row.split("|")[2].strip()
    path = tmp_path / "x.md"
    path.write_text(text.replace(row, row.replace(first, MANY, 1)))
    whole = load(FIXTURES / "cs336" / "four_models.md", cache=False)
    damaged = load(path, cache=False)
    assert [run.name for run in damaged] == [run.name for run in whole]
    lost = {k for a, b in zip(whole, damaged, strict=True) for k in a.meta if k not in b.meta}
    assert len(lost) == 1


def test_a_step_or_a_size_may_have_any_number_of_digits(tmp_path: Path) -> None:
    steps = (FIXTURES / "vllm_layerwise" / "two_steps.json").read_text()
    path = tmp_path / "x.json"
    path.write_text(steps.replace('"decode_1"', f'"decode_{MANY}"'))
    (run,) = load(path, cache=False)
    assert run.events.filter(run.events["name"] == f"decode_{MANY}")["step"].to_list() == [None]
    log = (FIXTURES / "doppler" / "browser.log").read_text()
    shaped = re.sub(r"\d+L/(\d+)H/", rf"{MANY}L/\1H/", log)
    assert shaped != log
    path = tmp_path / "x.log"
    path.write_text(shaped)
    assert all("layers" not in run.meta and "hidden" in run.meta for run in load(path, cache=False))


@pytest.mark.parametrize("odd", ["9" * 400, "-" + "9" * 400])
def test_a_number_beyond_those_of_a_float_is_none_of_a_run(odd: str, tmp_path: Path) -> None:
    """What states it is kept; nobody who reckons with it meets a number that no float can be."""
    text = (FIXTURES / "doppler" / "report.json").read_text()
    path = tmp_path / "x.json"
    path.write_text(text.replace('"decodeTokensPerSec": 250.5', f'"decodeTokensPerSec": {odd}'))
    (whole,), (run,) = load(FIXTURES / "doppler" / "report.json", cache=False), load(path, cache=False)
    assert (whole.meta["decode_tokens_per_s"], run.meta["decode_tokens_per_s"]) == (250.5, None)
    assert run.events.equals(whole.events)


def test_the_layer_of_an_op_is_told_in_plain_digits(tmp_path: Path) -> None:
    text = (FIXTURES / "metallic" / "recording.jsonl").read_text()
    path = tmp_path / "x.jsonl"
    path.write_text(re.sub(r"_layer_\d+\"", '_layer_٣"', text))
    (run,) = load(path, cache=False)
    assert run.tables["launches"]["layer"].null_count() == run.tables["launches"].height
