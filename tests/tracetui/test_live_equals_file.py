"""What is seen of a run while it grows is in the end what `format_report` says of its recording."""

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import capture.native.tail
from capture.load_runs import load
from capture.native import compaction
from capture.native.emit import Emitter
from capture.native.tail import FileTail
from capture.run import Run
from tests.tracetui.ui.hand import answer, until
from tracetui.look import Look
from tracetui.process import EngineProcess
from tracetui.report_formats import format_report
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower
from tracetui.views import find_missing_needs, load_view, load_views

ROOT = Path(__file__).parents[2]
OPS = ("rmsnorm", "qkv_proj", "attention", "ffn_down")
LAYERS = 3
PLAIN = Look()
SEEN = ("summary", "kernels", "growth", "layers", "steps", "tree", "timeline", "shapes", "counters", "log")


def record(path: Path, steps: int, follow: FileTail | None = None, seed: int = 0) -> None:
    """A decode whose attention grows with the context; it is looked at now and then."""
    rng, emitter = random.Random(seed), Emitter(path)
    emitter.run("toy", {"model": "toy-1b", "device": "abacus"})
    rows = [(name, layer) for layer in range(LAYERS) for name in OPS]
    emitter.plan(
        {
            "id": i,
            "name": name,
            "layer": layer,
            "lens": "wall",
            "shape": f"m=1 n={layer}",
            "flops": [9.0, 2.0],
        }
        for i, (name, layer) in enumerate(rows)
    )
    t = 10**9
    for step in range(steps):
        phase, begin, starts, durations = "prefill" if step % 50 == 0 else "decode", t, [], []
        for name, _ in rows:
            durations.append(rng.randrange(900, 1100) + (40 * step if name == "attention" else 0))
            starts.append(t)
            t += durations[-1]
        context = 8 + step
        emitter.columns(range(len(rows)), starts, durations, step=step, phase=phase, context=context)
        t += 500
        emitter.step(
            step, begin, t - begin, phase=phase, tokens=7 if phase == "prefill" else 1, context=context
        )
        emitter.event("counter", "power", t=t, value=float(100 + step % 17), unit="W")
        emitter.event("mark", f" word{step}", t=t, path="text")
        if follow is not None and rng.random() < 0.2:
            emitter.flush()
            follow.poll()
            follow.build_runs()
    emitter.end()


def told(name: str, run: Run, look: Look = PLAIN) -> dict[str, Any]:
    """What `report --format json` prints, but for where the run came from."""
    answer: dict[str, Any] = json.loads(format_report(load_view(name), [run], look, "json"))
    for part in (*answer["runs"], *answer["import"]):
        part.pop("format"), part.pop("source")
    return answer


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    path = tmp_path_factory.mktemp("live") / "prof.jsonl"
    follow = FileTail(path)
    record(path, 120, follow)
    follow.poll()
    (seen,), (kept,) = follow.build_runs(), load(path, cache=False)
    return seen, kept


@pytest.mark.corpus
@pytest.mark.parametrize("name", [v.name for v in load_views() if v.run_count == 1])
def test_every_view_says_the_same_of_both(both: tuple[Run, Run], name: str) -> None:
    seen, kept = both
    assert told(name, seen) == told(name, kept)
    assert name not in SEEN or not find_missing_needs(load_view(name), [seen])


@pytest.mark.parametrize(
    "look", [Look(per="token"), Look(per="step", group="layer"), Look(filter="att", phase="decode")]
)
def test_so_they_do_however_they_are_looked_at(both: tuple[Run, Run], look: Look) -> None:
    seen, kept = both
    assert told("kernels", seen, look) == told("kernels", kept, look)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A run of which most was folded, and its recording."""
    path = tmp_path_factory.mktemp("long") / "prof.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture.native.tail, "RECENT_EVENTS", 1200)
        patch.setattr(compaction, "RECENT_SAMPLES", 60)
        patch.setattr(compaction, "SAMPLE_CELLS", 12)
        patch.setattr(compaction, "RECENT_MARKS", 100)
        follow = FileTail(path)
        record(path, 1000, follow)
        follow.poll()
        (seen,), (kept,) = follow.build_runs(), load(path, cache=False)
    assert seen.meta["folded"]["before"] > 700 and seen.events.height < kept.events.height / 2
    return seen, kept


@pytest.mark.corpus
@pytest.mark.parametrize(
    "look",
    [
        PLAIN, Look(group="layer"), Look(per="token"), Look(per="step"), Look(phase="decode"),
        Look(filter="proj"), Look(group="op", per="token", phase="prefill"), Look(focus=(("layer", 1),)),
    ],
)  # fmt: skip
def test_tables_of_a_folded_run_are_exact(long: tuple[Run, Run], look: Look) -> None:
    exact = ("count", "total_ns", "mean_ns", "min_ns", "max_ns", "share", "cumulative_share")
    group = look.group or "name"
    sides = [told("kernels", run, look)["rows"] for run in long]
    seen, kept = ([{c: row[c] for c in (group, *exact)} for row in rows] for rows in sides)
    assert seen == [near(row) for row in kept]


def near(row: dict[str, Any]) -> dict[str, Any]:
    """Sums of floats may differ in their last digits."""
    return {k: pytest.approx(v, rel=1e-12) if isinstance(v, float) else v for k, v in row.items()}


def test_percentiles_of_a_folded_run_are_of_the_steps_that_are_named(long: tuple[Run, Run]) -> None:
    seen, kept = long
    first = seen.meta["folded"]["before"]
    answer = told("kernels", seen)
    since = told("kernels", kept, Look(window=(first, 10**9)))
    quantiles = [{c: row[c] for c in ("name", "p50_ns", "p95_ns", "p99_ns")} for row in since["rows"]]
    actual = {row["name"]: row for row in answer["rows"]}
    assert all(actual[q["name"]] | q == actual[q["name"]] for q in quantiles)
    note = f"older steps are folded: percentiles, launches and times cover the steps since {first:,}"
    for name in ("kernels", "growth", "layers", "steps", "tree", "timeline"):
        assert any(note in output for output in told(name, seen)["notes"])
        assert not any("folded" in output for output in told(name, kept)["notes"])


def test_layers_and_shapes_of_a_folded_run_are_exact(long: tuple[Run, Run]) -> None:
    for name in ("layers", "shapes", "summary"):
        both = [[near(row) for row in told(name, run)["rows"]] for run in long]
        # growth of steps that are folded is not what sends a reader to the view of it
        seen, kept = ([row for row in rows if row.get("part") != "next"] for rows in both)
        # power is integrated over single steps, and it is said for how much of the time
        energy = [row for row in seen if row.get("name") == "GPU energy"]
        assert all("sampled in" in row["text"] for row in energy) and len(energy) == (name == "summary")
        seen, kept = ([row for row in rows if row.get("name") != "GPU energy"] for rows in (seen, kept))
        assert seen == kept


def test_steps_of_a_folded_run_add_up(long: tuple[Run, Run]) -> None:
    seen, kept = (told("steps", run) for run in long)
    assert seen["notes"][:2] == kept["notes"][:2]
    for column in ("tokens", "total_ns", "wall_ns", "gap_ns"):
        assert sum(row[column] for row in seen["rows"]) == sum(row[column] for row in kept["rows"])
    assert sum(row["steps"] for row in seen["rows"]) == len(kept["rows"]) == 1000


def test_growth_of_a_folded_run_goes_back_to_its_beginning(long: tuple[Run, Run]) -> None:
    look = Look(group="name")
    seen, kept = ({row["name"]: row for row in told("growth", run, look)["rows"]} for run in long)
    assert seen["attention"]["law"] == kept["attention"]["law"] == "linear"
    assert seen["attention"]["slope_ns_per_1k"] == pytest.approx(
        kept["attention"]["slope_ns_per_1k"], rel=0.01
    )
    for name in OPS:
        for column in ("steps", "tokens", "total_ns", "last_ns"):
            assert seen[name][column] == kept[name][column]
        assert len(seen[name]["trend"]) >= 30
    course = seen["attention"]["trend"]
    half = course[len(course) // 2] / course[-1]
    assert half == pytest.approx(0.5, abs=0.06)  # a value for as many steps each: the middle is the middle


def test_counters_of_a_folded_run_keep_their_range(long: tuple[Run, Run]) -> None:
    seen, kept = ({row["name"]: row for row in told("counters", run)["rows"]} for run in long)
    for column in ("count", "first", "mean", "min", "max", "last"):
        assert seen["power"][column] == pytest.approx(kept["power"][column], rel=1e-12)


def test_the_timeline_of_a_folded_run_is_that_of_its_newest_steps(long: tuple[Run, Run]) -> None:
    seen, kept = long
    first = seen.meta["folded"]["before"]
    newest = Look(window=(first, 10**9))
    assert told("timeline", seen, newest)["rows"] == told("timeline", kept, newest)["rows"]


def test_the_log_of_a_folded_run_says_what_it_left_out(long: tuple[Run, Run]) -> None:
    seen, kept = (told("log", run) for run in long)
    left_out = len(kept["rows"]) - len(seen["rows"])
    assert left_out > 500 and seen["notes"] == [f"{left_out:,} older lines are only in the file"]
    assert seen["rows"] == kept["rows"][left_out:]


ENGINE = """
import sys
from pathlib import Path
from tests.tracetui.test_live_equals_file import record
record(Path(sys.argv[1]), 60)
"""


@pytest.mark.slow
def test_the_screen_ends_with_what_report_prints(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    engine = EngineProcess([sys.executable, "-c", ENGINE, str(path)])
    app = Explorer(
        FileFollower(path, engine, "kernels"), ScreenOptions(view="kernels", follow=True, engine=engine)
    )
    shown: dict[str, list[dict[str, Any]]] = {}

    async def session() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(app, pilot, "engine ended")
            await until(app, pilot, "60 steps")
            await until(app, pilot, "5 Steps")  # tabs come with the answer after that of the header
            tabs = [view.name for view in app.workspace.tabs]
            for name in ("kernels", "layers", "steps"):
                await pilot.press(str(tabs.index(name) + 1))
                while not app.is_settled or app.workspace.session.view != name:
                    await pilot.pause(0.02)
                shown[name] = answer(app).rows.to_dicts()

    try:
        asyncio.run(session())
    finally:
        engine.stop()
    for name, rows in shown.items():
        command = [
            sys.executable,
            "-m",
            "tracetui",
            "report",
            name,
            str(path),
            "--format",
            "json",
            "--no-cache",
        ]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert json.loads(json.dumps(rows, default=str)) == json.loads(printed.stdout)["rows"]
    assert len(shown) == 3


@pytest.mark.corpus
@pytest.mark.parametrize("name", [v.name for v in load_views()])
def test_every_view_takes_a_folded_run(long: tuple[Run, Run], name: str) -> None:
    seen, kept = long
    chosen = load_view(name)
    for runs in ([seen, kept], [kept, seen]) if chosen.run_count > 1 else ([seen],):
        look = Look(focus=(("name", "attention"),)) if name in ("detail", "pair") else PLAIN
        answer = json.loads(format_report(chosen, runs, look, "json"))
        assert answer["rows"] or answer["notes"]


def test_a_folded_run_differs_from_its_recording_in_nothing(long: tuple[Run, Run]) -> None:
    seen, kept = long
    answer = json.loads(format_report(load_view("diff"), [kept, seen], PLAIN, "json"))
    assert answer["rows"] and {row["verdict"] for row in answer["rows"]} <= {"same", "~"}
    assert all(row["total_a_ns"] == row["total_b_ns"] for row in answer["rows"])
