"""A watched program does what it does alone: its graphs, its profiler, its processes, its ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from capture.load_runs import load
from tests.capture.record.recorded_code import MODEL, SMALL, STAND_IN, recorded, run, steps, told
from tests.capture.record.running import plain_environment
from tracetui.analysis.summary import build_run_facts
from tracetui.analysis.time.fitness import describe_fitness, judge_fitness
from tracetui.analysis.time.step_sampling import compare_profiled_steps

pytestmark = pytest.mark.slow

pytest.importorskip("torch")

GRAPHS = """
from torch._dynamo.utils import counters
for fullgraph in (True, False):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(model, fullgraph=fullgraph, backend="eager")
    with torch.no_grad():
        for _ in range(40):
            compiled(torch.ones(2, 8))
    print(dict(counters["stats"]), dict(counters["graph_break"]), dict(counters["unimplemented"]))
"""


def test_compiled_graphs_are_those_of_the_program_alone(tmp_path: Path) -> None:
    """Counted by Dynamo itself, through windows and steps: nothing of ours is compiled or guarded.

    The program has three modules to call, which make one graph.
    """
    watched = run(GRAPHS, tmp_path)
    assert watched.stdout == "{'calls_captured': 3, 'unique_graphs': 1} {} {}\n" * 2
    assert watched.stderr == ""
    assert steps(tmp_path) == 80


PROFILES = """
from torch.profiler import profile, ProfilerActivity
work(3)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    work(5)
print(sorted((e.key, e.count) for e in prof.key_averages() if e.key == "aten::addmm"))
work(4)
"""


def test_its_own_profiler_sees_all_that_it_would_see_alone(tmp_path: Path) -> None:
    watched = run(PROFILES, tmp_path)
    assert watched.stdout == "[('aten::addmm', 10)]\n", watched.stderr
    assert steps(tmp_path) == 12


# prints the medians of its own times from begin to begin, with and without the profiler
SLOWED = """
import statistics, time
from torch.profiler import profile
begins = []
class Slowed(nn.Linear):
    def forward(self, x):
        is_profiled = torch.autograd._profiler_enabled()
        begins.append((time.perf_counter_ns(), is_profiled))
        while time.perf_counter_ns() < begins[-1][0] + (9e6 if is_profiled else 4e6):
            pass
        return super().forward(x)
model = nn.Sequential(Slowed(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
work(20)
with profile():
    work(7)
work(20)
pairs = list(zip(begins, begins[1:]))
print([statistics.median(b - a for (a, x), (b, y) in pairs if x == y == on) for on in (True, False)])
"""


def test_unprofiled_time_is_that_of_the_steps_without_the_profiler_of_the_program(tmp_path: Path) -> None:
    watched = run(SLOWED, tmp_path)
    profiled_ns, unprofiled_ns = json.loads(watched.stdout)
    (recording,) = load(tmp_path / "out.jsonl")
    steps = compare_profiled_steps(recording)
    assert steps is not None and steps.unprofiled_ns is not None
    assert (steps.profiled, steps.steps) == (7, 47)
    assert steps.profiled_ns == pytest.approx(profiled_ns, rel=0.05)
    assert steps.unprofiled_ns[0] == pytest.approx(unprofiled_ns, rel=0.05)
    facts = dict(build_run_facts(recording).select("name", "text").rows())
    assert facts["profiled by the program"].startswith("7 of 47 forward steps, ")
    assert "7 steps profiled by the program" in describe_fitness(judge_fitness(recording))  # type: ignore[arg-type]


FORKS = """
work(2)
for _ in range(3):
    if not os.fork():
        work(4)
        os._exit(0)
    os.wait()
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=work, args=(5,))
child.start()
child.join()
print(child.exitcode)
"""


FORKS_AND_RETURNS = """
import ctypes, time
work(40)
if not os.fork():
    work(4)
    ctypes.CDLL(None).printf(b"buffered by C\\n")
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_a_forked_child_ends_as_it_does_alone_after_a_window_of_its_parent(tmp_path: Path) -> None:
    """The profiler's handler for the end of a process waits for a thread that only the parent has."""
    result = run(FORKS_AND_RETURNS, tmp_path)
    assert (result.stdout, result.stderr) == ("buffered by C\n3\n", "")
    windows = recorded(tmp_path).events.filter(kind="span", op="window")
    assert windows.height and told(tmp_path) == [[4, 4, 1], [40, 40, 1]]


def test_a_program_that_clears_its_environment_is_recorded(tmp_path: Path) -> None:
    done = run("os.environ.clear(); work(4)", tmp_path, model=SMALL)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line[0] for line in told(tmp_path)] == [4]
    assert recorded(tmp_path).events.filter(kind="step").height == 4


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames can be left out from Python 3.11 on")
def test_tracebacks_of_a_recorded_program_are_those_of_the_program_alone(tmp_path: Path) -> None:
    code = (
        "import inspect, traceback\nwork(4)\nprint(inspect.signature(nn.Module.__call__), file=sys.stderr)\n"
    )
    for call in ("model(torch.ones(2, 9))", "model(torch.ones(2, 9)).backward()", "torch.optim.SGD([], 0.1)"):
        code += f"try:\n    {call}\nexcept Exception:\n    traceback.print_exc()\n"
    code += "model.train()(torch.ones(2, 8)).sum().backward(torch.ones(3))\n"
    alone = subprocess.run(
        [sys.executable, "-c", MODEL + code], env=plain_environment(), cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    recorded = run(code, tmp_path)
    assert "patch_torch" not in recorded.stderr and alone.stderr.count("Traceback") == 4
    assert (recorded.returncode, recorded.stderr) == (alone.returncode, alone.stderr)


def test_forked_children_are_seen_though_they_skip_the_end(tmp_path: Path) -> None:
    result = run(FORKS, tmp_path)
    assert (result.stdout, result.stderr) == ("0\n", "")
    assert told(tmp_path) == [[2, 2, 1], [4, 4, 1], [4, 4, 1], [4, 4, 1], [5, 5, 1]]
    events = recorded(tmp_path).events.filter(kind="step")
    assert events.height == 19 and events["step"].n_unique() == 19, "numbered over all processes"
    assert events["track"].n_unique() == 5


THREADS = """
from concurrent.futures import ThreadPoolExecutor
import threading
with ThreadPoolExecutor(4) as pool:
    barrier = threading.Barrier(4)
    list(pool.map(lambda _: (barrier.wait(), work(10)), range(4)))
print(threading.active_count())
"""


def test_every_thread_is_seen(tmp_path: Path) -> None:
    result = run(THREADS, tmp_path, model=SMALL)
    assert (result.stdout, result.stderr) == ("1\n", "")
    assert told(tmp_path) == [[40, 40, 4]] and steps(tmp_path) == 40


def test_threads_that_have_ended_leave_their_place_to_others(tmp_path: Path) -> None:
    code = "t = threading.Thread(target=work, args=(2,)); t.start(); t.join()"
    assert run(f"import threading\nfor _ in range(9):\n {code}", tmp_path, model=SMALL).stderr == ""
    assert told(tmp_path) == [[18, 18, 1]]


@pytest.mark.parametrize(
    ("ending", "code"),
    [("os._exit(3)", 3), ("os.execv('/bin/sh', ['sh', '-c', 'exit 4'])", 4), ("raise SystemExit(5)", 5)],
)
def test_each_way_to_end_keeps_what_was_seen(ending: str, code: int, tmp_path: Path) -> None:
    result = run(f"work(6)\n{ending}", tmp_path, model=SMALL)
    assert result.returncode == code
    assert steps(tmp_path) == 6 and recorded(tmp_path).log.notices == ()


EXECUTES = """
work(4)
for path in ("/nonexistent", "/", None, "text"):
    try:
        os.execv(path, ["x"])
    except (OSError, TypeError) as e:
        print(type(e).__name__, e)
    work(5)
"""


def test_a_program_that_fails_to_execute_another_is_recorded_on(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    alone = subprocess.run(
        [sys.executable, "-c", SMALL + EXECUTES], env=plain_environment() | {"PYTHONPATH": str(STAND_IN)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    result = run(EXECUTES, tmp_path, model=SMALL)
    assert (result.returncode, result.stdout, result.stderr) == (0, alone.stdout, "")
    assert steps(tmp_path) == 24 and told(tmp_path) == [[24, 24, 1]]


def test_a_recording_that_ended_before_a_program_that_cannot_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o700)
    run(EXECUTES, tmp_path, model=SMALL)
    (notes,) = (tmp_path / "account").glob("process-*")
    assert "fault execv failed after the recording had ended" in notes.read_text()
    assert steps(tmp_path) == 19


INTERRUPTS = """
def interrupt(frame, event, arg):
    if frame.f_code.co_name == {function!r} and {file!r} in frame.f_code.co_filename:
        if event == {event!r}:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt
for _ in range(3):
    work(4)
    sys.settrace(interrupt)
    try:
        work(1)
    except KeyboardInterrupt:
        print("interrupted")
    sys.settrace(None)
work(20)
"""


@pytest.mark.parametrize(("function", "event"), [("leave", "call"), ("enter_module", "return")])
def test_a_signal_between_a_call_and_its_note_costs_one_step(
    function: str, event: str, tmp_path: Path
) -> None:
    result = run(
        INTERRUPTS.format(file="program_recorder", function=function, event=event), tmp_path, model=SMALL
    )
    assert (result.stdout, result.stderr) == ("interrupted\n" * 3, "")
    assert steps(tmp_path) == 3 * 4 + 20


FAULT = """
work(2)
import sys
watch = sys.modules["_tracetui_capture.record.thread_recorder"].ThreadRecorder
def broken(*_):
    raise ValueError("of our own")
watch._is_step_call = broken
work(3)
print("done")
"""


def test_it_lets_go_at_its_first_fault_with_one_line(tmp_path: Path) -> None:
    result = run(FAULT, tmp_path, model=SMALL)
    assert (result.returncode, result.stdout) == (0, "done\n")
    assert result.stderr == "tracetui: recording stopped: ValueError: of our own\n"


DROPS = """
import gc, time, weakref
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(64, 256), nn.Linear(256, 256), nn.Linear(256, 64)

    def forward(self, ids):
        return self.head(self.inner(self.embed(ids)))

net, ids, end = Net(), torch.ones(1, 1, dtype=torch.long), time.monotonic() + 0.4
with torch.no_grad():
    while time.monotonic() < end:
        net(ids)
gone = [weakref.ref(module) for module in (net.head, net)]
net.head = None
print(gone[0]())
net = None
gc.collect()
print(gone[1]())
"""


def test_a_module_that_the_program_drops_is_gone(tmp_path: Path) -> None:
    """Its weights are memory that the program counts on, whether or not it calls a model again."""
    assert run(DROPS, tmp_path).stdout == "None\nNone\n"


def test_the_environment_of_the_program_is_its_own(tmp_path: Path) -> None:
    show = "print(json.dumps([sys.path[1:], sorted(os.environ)]))"
    command = [sys.executable, "-c", f"import json, os, sys; {show}"]
    alone = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, check=True)
    told_by = [
        json.loads(result.stdout) for result in (alone, run(f"import json; work(4); {show}", tmp_path))
    ]
    assert told_by[0][0] == told_by[1][0]
    ours = {"PYTHONPATH", "TRACETUI_OUT", "TRACETUI_RUN", "TRACETUI_ACCOUNT"}
    assert set(told_by[1][1]) - set(told_by[0][1]) == ours
