"""Profiles that other programs make of small programs, against the same files read in plain Python."""

import json
import os
import re
import signal
import statistics
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load, load_all
from capture.run import Run
from tests.capture.loaders._host_spans import read_events, read_spans, sum_self_times
from tests.real import PROGRAMS, find_program
from tracetui import units
from tracetui.analysis.key_facts import suggest_views
from tracetui.analysis.time.fitness import judge_fitness
from tracetui.look import Look
from tracetui.views import ask, load_view

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run_program(program: str, name: str, *arguments: str) -> Any:
    """Run one of our programs; return what its last line of output says, which is JSON."""
    command = [program, str(PROGRAMS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def sum_work(run: Run) -> dict[str, int]:
    work = run.events.filter(pl.col("kind") == "kernel", pl.col("dur") > 0)
    return dict(work.group_by(pl.col("name").cast(pl.String)).agg(pl.col("dur").sum()).iter_rows())


def sum_own_times(
    path: Path, is_read: Callable[[dict[str, Any]], bool] = lambda event: True
) -> dict[str, int]:
    """Sum what each name took itself, over the threads of a Chrome trace."""
    threads = defaultdict(list)
    for thread, *span in read_spans(path, is_read):
        threads[thread].append(tuple(span))
    sums = sum(map(sum_self_times, threads.values()), Counter[str]())
    return {name: total for name, total in sums.items() if total}


def list_steps(run: Run) -> list[int]:
    return run.events.filter(pl.col("kind") == "step").sort("step")["dur"].to_list()


def test_jax_on_a_processor(tmp_path: Path) -> None:
    """One run in three files, of which a folder shows one; operations of XLA are the work, in loops too."""
    clock = run_program(find_program("jax"), "jax_steps.py", str(tmp_path))
    (profile,) = load_all([tmp_path], cache=False)
    (file,) = tmp_path.rglob("*.trace.json.gz")
    (trace,) = load(file, cache=False)
    expected = sum_own_times(file, lambda event: "hlo_op" in event.get("args", {}))
    assert sum_work(trace) == expected and len(expected) > 5
    rounded = sum_work(profile)
    calls = Counter(name for *_, name in read_spans(file, lambda event: "hlo_op" in event.get("args", {})))
    assert rounded.keys() == expected.keys()
    assert all(abs(rounded[name] - expected[name]) <= 4 * calls[name] for name in expected)
    for run in (profile, trace):
        steps = [dur / 1e9 for dur in list_steps(run)]
        assert all(0 < own - step < 0.005 for own, step in zip(clock, steps, strict=True))


@pytest.fixture(scope="module")
def empty_windows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windows")
    subprocess.run([find_program("host"), str(PROGRAMS / "torch_empty.py"), str(folder)], check=True)
    return folder


@pytest.mark.parametrize("name", ["warm_up", "last_step", "stopped_at_once", "functions", "allocation"])
def test_windows_of_torch_without_work_say_so_and_how_long_they_were(name: str, empty_windows: Path) -> None:
    """No view of such a file is worth opening, and nothing stands for kernels."""
    path = empty_windows / f"{name}.json"
    (window,) = (event["dur"] for event in read_events(path) if event.get("cat") == "Trace")
    (run,) = load(path, cache=False)
    (flaw,) = judge_fitness(run).flaws
    what = "no operation that works" if name == "allocation" else "no operation"
    duration = units.format_duration(round(1000 * window))
    assert flaw.text == f"{what} was recorded in the {duration} that the profiler was on"
    assert not suggest_views(run)
    assert name == "functions" or not [n for n in run.log.notices if n.id == "leaf_ops"]


@pytest.mark.parametrize("every", [1, 3, 0])
def test_steps_of_jax_that_return_before_their_work_are_no_steps(every: int, tmp_path: Path) -> None:
    """All work counts either way, by the file of JSON beside the profile; but it is that of no step."""
    clock = run_program(find_program("jax"), "jax_unawaited.py", str(tmp_path), str(every))
    (profile,) = load_all([tmp_path], cache=False)
    (file,) = tmp_path.rglob("*.trace.json.gz")
    expected = sum_own_times(file, lambda event: "hlo_op" in event.get("args", {}))
    assert sum(sum_work(profile).values()) == pytest.approx(sum(expected.values()), rel=0.001)
    assert sum(expected.values()) > 1e9 * max(clock)
    texts = [text for text in profile.log.as_dict()["notices"] if text["id"] == "dispatch_steps"]
    if every == 1:
        assert [step / 1e9 for step in list_steps(profile)] == pytest.approx(clock, abs=0.005) and not texts
        return
    assert not profile.has("step") and len(texts) == 1
    if every:  # on a busy host work may begin before a step that does not wait returns
        count = re.match(r"(\d) of 6 annotated steps ended before", texts[0]["message"])
        assert count and 1 <= int(count[1]) <= 4, texts


def test_nodes_and_runs_of_onnxruntime(tmp_path: Path) -> None:
    said = run_program(find_program("host"), "onnx_graph.py", str(tmp_path), "7")
    (run,) = load(tmp_path / "profile.json", cache=False)
    nodes = [event for event in read_events(tmp_path / "profile.json") if event["cat"] == "Node"]
    work = run.events.filter(pl.col("kind") == "kernel")
    assert work.height == len(nodes) == 7 * said["nodes"]
    assert work["dur"].sum() == 1000 * sum(node["dur"] for node in nodes)
    steps = [dur / 1e9 for dur in list_steps(run)]
    assert all(0 <= own - step < 0.002 for own, step in zip(said["times"], steps, strict=True))
    in_layers = work.filter(pl.col("name").cast(pl.String).str.contains("layers"))
    layers = in_layers["name"].cast(pl.String).str.extract(r"layers\.(\d+)").cast(pl.Int32)
    assert (in_layers["layer"] == layers).all() and in_layers["op"].null_count() <= 7 * 3  # additions


def test_counters_of_openvino_in_json(tmp_path: Path) -> None:
    """Two requests at once: each is a step, with the total that the report states."""
    run_program(find_program("host"), "onnx_graph.py", str(tmp_path), "1")
    options = "-niter 8 -nstreams 2 -nireq 2 -shape x[32,128] -hint none -json_stats"
    report = ["-report_type", "detailed_counters", "-report_folder", str(tmp_path)]
    model = ["-m", str(tmp_path / "model.onnx"), *options.split()]
    subprocess.run([find_program("host", "benchmark_app"), *model, *report], capture_output=True, check=True)
    path = tmp_path / "benchmark_detailed_counters_report.json"
    (run,) = load(path, cache=False)
    requests = json.loads(path.read_text())["detailed_performance"]
    sums = dict(run.events.group_by("step").agg(pl.col("dur").sum()).iter_rows())
    totals = [1e6 * float(request["total_real_time"]) for request in requests]
    assert len(totals) == 2 and [sums[1], sums[2]] == pytest.approx(totals, abs=1e3 * run.events.height)


def test_counters_of_openvino(tmp_path: Path) -> None:
    run_program(find_program("host"), "onnx_graph.py", str(tmp_path), "1")
    options = "-niter 4 -nstreams 1 -nireq 1 -shape x[32,128] -api sync -hint none"
    report = ["-report_type", "detailed_counters", "-report_folder", str(tmp_path)]
    model = ["-m", str(tmp_path / "model.onnx"), *options.split()]
    subprocess.run([find_program("host", "benchmark_app"), *model, *report], capture_output=True, check=True)
    path = tmp_path / "benchmark_detailed_counters_report.csv"
    (run,) = load(path, cache=False)
    rows = [line.split(";") for line in path.read_text().splitlines()]
    first = next(i for i, row in enumerate(rows) if row[0] == "layerName")
    last = next(i for i, row in enumerate(rows) if row[0].startswith("Total"))
    total_ms = float(rows[last][rows[first].index("realTime (ms)")])
    assert sum(sum_work(run).values()) == pytest.approx(1e6 * total_ms, abs=1e3 * (last - first))


@pytest.mark.parametrize("profiler", ["viztracer", "py-spy"])
def test_functions_of_plain_python(profiler: str, tmp_path: Path) -> None:
    """What each function took itself is the work; viztracer writes every call, py-spy samples."""
    path, steps = tmp_path / "trace.json", "4" if profiler == "viztracer" else "300"
    options = ["--quiet", "--tracer_entries", "2000000", "-o", str(path)]
    if profiler == "py-spy":
        options = ["record", "-f", "chrometrace", "-r", "500", "-o", str(path), "--", find_program("host")]
    command = [find_program("host", profiler), *options, str(PROGRAMS / "plain_decode.py"), steps]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (run,) = load(path, cache=False)
    assert sum_work(run) == sum_own_times(path)
    tree = ask(load_view("tree"), [run], Look()).rows
    spans = run.events.filter(pl.col("kind") == "span")["dur"].sum()
    assert tree["self_ns"].sum() <= spans
    if profiler == "viztracer":
        said = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
        names = (
            run.events.filter(pl.col("kind") == "kernel")["name"].cast(pl.String).str.extract(r"^(\w+) \(")
        )
        assert {name: (names == name).sum() for name in said} == said


def test_tasks_of_asyncio_take_no_time_twice(tmp_path: Path) -> None:
    """viztracer gives each task a thread of its own; all run in the thread of the loop, one at a time."""
    path = tmp_path / "trace.json"
    options = ["--quiet", "--log_async", "-o", str(path)]
    command = [find_program("host", "viztracer"), *options, str(PROGRAMS / "async_tasks.py")]
    subprocess.run(command, capture_output=True, check=True)
    (run,) = load(path, cache=False)
    spans = [(start, end, name) for _, start, end, name in read_spans(path)]
    assert len({thread for thread, *_ in read_spans(path)}) >= 4
    expected = {name: total for name, total in sum_self_times(spans).items() if total}
    assert sum_work(run) == expected
    assert sum(expected.values()) <= max(end for _, end, _ in spans) - min(start for start, *_ in spans)


def test_a_compiled_model_on_a_processor(tmp_path: Path) -> None:
    """Compiled code is work with its own time, as in the table of the profiler itself."""
    path = tmp_path / "trace.json"
    said = run_program(find_program("host"), "compiled.py", str(path))
    (run,) = load(path, cache=False)
    work = sum_work(run)
    code = [name for name in said["self_us"] if name.startswith("## Call CompiledFxGraph")]
    assert len(code) == 1 and work[code[0]] == pytest.approx(1000 * said["self_us"][code[0]], abs=1000)
    products = run.events.filter(pl.col("kind") == "kernel", pl.col("name") == "aten::mm")
    assert products.height == said["counts"]["aten::mm"]
    assert not [name for name in work if "Dynamo" in name]
    inside = sum(end - start for _, start, end, name in read_spans(path) if name == code[0])
    assert 0.95 * inside < sum(work.values()) <= inside < 1e9 * sum(said["times"])


def test_lines_of_compiled_code_are_those_of_the_program(tmp_path: Path) -> None:
    """By what Inductor writes next to the trace; the program says on which line each call stands."""
    variables = {"TORCH_COMPILE_DEBUG": "1", "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1"}
    environment = os.environ | variables | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    command = [find_program("host"), str(PROGRAMS / "compiled_lines.py"), str(tmp_path / "trace.json")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    (run,) = load(tmp_path / "trace.json", cache=False)
    work = run.events.filter(pl.col("kind") == "kernel", pl.col("t").is_not_null()).sort("t")
    rows = work.select(pl.col("name", "line").cast(pl.String)).rows()
    lines = {name.replace("_cpp", " cpp", 1): line for name, line in rows if name.startswith("graph_")}
    products = [line for name, line in rows if name == "aten::addmm"]
    lines |= {"first addmm": products[0], "last addmm": products[1]}
    assert len(products) == 2 and lines.keys() == said.keys()
    for mark, at in said.items():
        assert lines[mark].startswith(f"{PROGRAMS / 'compiled_lines.py'}({at}): "), mark


def launch_ranks(folder: Path, name: str, *arguments: str) -> list[Any]:
    """Run a program by torchrun in two processes; return what each says of its own clock."""
    launch = ["--standalone", "--nproc-per-node", "2", str(PROGRAMS / name), str(folder)]
    command = [find_program("host", "torchrun"), *launch, *arguments]
    subprocess.run(command, capture_output=True, check=True)
    return [json.loads((folder / f"clock{rank}.txt").read_text()) for rank in (0, 1)]


def test_a_late_rank_is_named_and_how_late_it_is(tmp_path: Path) -> None:
    """As late as its collectives begin after those of the other, of which it slept at least most."""
    _, late = launch_ranks(tmp_path, "late_rank.py", "200")
    begins = [
        [float(event["ts"]) for event in read_events(path) if event.get("name") == "gloo:all_reduce"]
        for path in (tmp_path / f"rank{rank}.pt.trace.json" for rank in (0, 1))
    ]
    late_ns = 1e3 * statistics.median(b - a for a, b in zip(*map(sorted, begins), strict=True))
    (run,) = load_all([tmp_path], cache=False, merge=True)
    answer = ask(load_view("ranks"), [run], Look())
    (row,) = answer.rows.filter(pl.col("rank") == 1).to_dicts()
    assert row["verdict"] == "slower" and row["steps"] == 12
    assert row["behind_low_ns"] < late_ns < row["behind_high_ns"]
    assert row["behind_ns"] == pytest.approx(late_ns, rel=0.1)
    assert row["behind_high_ns"] > 0.9e9 * statistics.median(late["slept"])
    assert any("straggler: rank 1 is late" in note for note in answer.notes)


def test_phases_and_collectives_of_fsdp2(tmp_path: Path) -> None:
    """Local copies are no collectives; what lies between the marks of a pass is its forward."""
    (clock, _) = launch_ranks(tmp_path, "sharded.py")
    path = tmp_path / "rank0.pt.trace.json"
    (run,) = load(path, cache=False)
    spans = read_spans(path)
    collectives = Counter[str]()  # the call, and what gloo does in its own threads meanwhile
    for _, start, end, name in spans:
        if name.startswith(("c10d::", "gloo:")):
            collectives[name] += end - start
    work = run.events.filter(pl.col("kind") == "kernel").with_columns(
        pl.col("name", "category").cast(pl.String)
    )
    comm = work.filter(category="comm").group_by("name").agg(pl.col("dur").sum())
    assert dict(comm.iter_rows()) == collectives and len(collectives) == 4
    steps = [(start, end) for *_, start, end, name in _read_profiler_steps(path)]
    assert list_steps(run) == [end - start for start, end in steps]
    sums = work.group_by("step", pl.col("phase").cast(pl.String)).agg(pl.col("dur").sum())
    for phase, own in zip(("forward", "backward", "optimizer"), zip(*clock, strict=True), strict=True):
        totals = sums.filter(phase=phase).sort("step")["dur"].to_list()
        assert all(0 < total < 1.05e9 * own_s for total, own_s in zip(totals, own, strict=True))
    products = work.filter(name="aten::mm").group_by("step", pl.col("phase").cast(pl.String)).len()
    of_layers = 3 * 7 + 1  # and those of the head; backward has two for each
    assert set(products.select("phase", "len").rows()) == {
        ("forward", of_layers),
        ("backward", 2 * of_layers),
    }


def _read_profiler_steps(path: Path) -> list[tuple[int, int, str]]:
    events = [event for event in read_events(path) if str(event.get("name")).startswith("ProfilerStep#")]
    spans = [(round(1000 * e["ts"]), round(1000 * (e["ts"] + e["dur"])), e["name"]) for e in events]
    return sorted(set(spans))


PAGE = """<body><canvas id=c></canvas><script>
const pen = document.getElementById('c').getContext('2d'); let frames = 0;
function draw() {
  for (let i = 0; i < 2000; i++) pen.fillRect(Math.random() * 300, Math.random() * 150, 3, 3);
  if (frames++ < 40) requestAnimationFrame(draw);
}
draw()</script>"""


def trace_browser(folder: Path, kind: str) -> Path:
    """Let Chromium draw a page for 2 s and write its trace."""
    page, path, log = folder / "page.html", folder / f"trace.{kind}", folder / "log.txt"
    page.write_text(PAGE)
    options = [
        "--headless=new",
        "--no-sandbox",
        "--no-zygote",
        "--disable-gpu",
        f"--user-data-dir={folder}/user",
    ]
    tracing = ["--trace-startup", f"--trace-startup-file={path}", "--trace-startup-duration=2"]
    command = [find_program("chromium", "chromium"), *options, *tracing, f"--trace-startup-format={kind}"]
    with log.open("wb") as file:
        browser = subprocess.Popen(
            [*command, page.as_uri()], stdout=file, stderr=file, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and b"Completed startup tracing" not in log.read_bytes():
            time.sleep(0.5)
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
    return path


def sum_slices(run: Run) -> dict[str, tuple[int, int]]:
    """Count and sum the spans of each name, which are those with a start: a self time has none."""
    rows = run.events.filter(pl.col("kind").is_in(["kernel", "span"]) & pl.col("t").is_not_null())
    rows = rows.drop_nulls("dur").group_by(pl.col("name").cast(pl.String))
    return {
        name: (count, total) for name, count, total in rows.agg(pl.len(), pl.col("dur").sum()).iter_rows()
    }


def assert_no_model(run: Run) -> None:
    """A browser has no layers, no steps and no parts of a model, whatever its functions are called."""
    assert not [column for column in ("layer", "phase", "step", "op") if run.has(column)]
    assert set(run.events["category"].cast(pl.String).drop_nulls()) <= {"other", "wait", "host", "comm"}


def test_slices_of_a_browsers_perfetto_trace(tmp_path: Path) -> None:
    path = trace_browser(tmp_path, "proto")
    truth = run_program(find_program("host"), "read_pftrace.py", str(path))
    (run,) = load(path, cache=False)
    assert len(truth["slices"]) > 200
    assert sum_slices(run) == {name: tuple(slices) for name, slices in truth["slices"].items()}
    assert_no_model(run)


def test_slices_of_a_browsers_chrome_trace(tmp_path: Path) -> None:
    path = trace_browser(tmp_path, "json")
    (run,) = load(path, cache=False)
    counts, totals, others = Counter[str](), Counter[str](), set()
    for event in read_events(path):
        if event["ph"] == "X" and "dur" in event:
            counts[event["name"]] += 1
            totals[event["name"]] += round(1000 * event["dur"])
        elif event["ph"] in "BEbeX":
            others.add(event["name"])
    expected = {name: (counts[name], totals[name]) for name in counts if name not in others}
    slices = sum_slices(run)
    assert len(expected) > 200 and {name: slices[name] for name in expected} == expected
    assert_no_model(run)
