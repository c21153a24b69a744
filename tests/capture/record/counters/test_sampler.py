"""The sampler: what is there is measured, what is not is named once, and nothing brings it down."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from capture.native.emit import Emitter
from capture.record.counters.sampler import EnergyDomains, build_host_probes, is_alive, iter_rounds
from capture.run import Run
from tracetui.analysis.summary import build_run_facts

HERE = Path(__file__).parent.parent


@contextmanager
def sampler(out: Path, *more: str, nvml: str = "ok", hz: str = "50") -> Iterator[subprocess.Popen[bytes]]:
    """A sampler that watches a sleeping process; both are ended."""
    out.touch()  # as record and live do
    watched = subprocess.Popen(["sleep", "60"])
    path = os.pathsep.join([str(HERE / "fake_nvml"), str(HERE.parent.parent.parent)])
    command = [
        sys.executable,
        "-m",
        "capture.record.counters.sampler",
        str(out),
        "--pid",
        str(watched.pid),
        "--hz",
        hz,
    ]
    process = subprocess.Popen([*command, *more], env=os.environ | {"PYTHONPATH": path, "FAKE_NVML": nvml})
    try:
        yield process
    finally:
        watched.kill()
        watched.wait()
        assert process.wait(timeout=10) == 0, "the sampler ends with the process that it watches"


def counters(run: Run, track: str | None = None) -> dict[str, float]:
    """Each counter's last value."""
    rows = run.events.filter(pl.col("kind") == "counter")
    if track:
        rows = rows.filter(pl.col("track") == track)
    return {str(r["name"]): r["value"] for r in rows.iter_rows(named=True)}


def marks(run: Run) -> list[str]:
    return [str(n) for n in run.events.filter(kind="mark")["name"]]


def wait_for(out: Path, *names: str) -> Run:
    """The recording, once it holds all these counters or words."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        time.sleep(0.05)
        try:
            (run,) = load(out, cache=False)
        except CaptureError:
            continue
        text = " ".join([*counters(run), *marks(run)])
        if all(name in text for name in names):
            return run
    raise AssertionError(f"{names} never came")


def test_cpu_and_gpu_by_value(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with sampler(out):
        run = wait_for(out, "process_mem_used", "gpu_pcie_receive", "gpu_throttle")
    actual = counters(run, "gpu 1")
    assert actual == {
        "gpu_usage": 41, "gpu_mem_usage": 20, "gpu_sm_frequency": 1000, "gpu_mem_frequency": 2000,
        "gpu_power": 70.5, "gpu_energy": 123, "gpu_temperature": 61, "gpu_mem_used": 5 << 30,
        "gpu_pcie_transmit": 7 * 1024, "gpu_pcie_receive": 7 * 1024, "gpu_throttle": 4,
    }  # fmt: skip
    assert "gpu 0: clocks reduced by power cap" in marks(run)
    host = counters(run)
    assert 0 <= host["host_cpu_usage"] <= 100 and host["process_mem_used"] > 50_000
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < host["host_mem_used"] < total
    cores = run.events.filter(name="core_usage")["track"].cast(pl.String).unique()
    assert len(cores) == os.cpu_count()
    assert run.log.lost_data is False


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("nvml", "said"),
    [
        ("absent", "GPUs cannot be measured: NVML Shared Library Not Found"),
        ("unsupported@power", "cannot be measured: gpu_power of gpu 0, gpu_power of gpu 1 (Not Supported)"),
        ("lost@30", "(GPU is lost)"),
        ("die@30", "the GPU sampler died (signal 11)"),
        ("one", "gpu 0 cannot be measured: Insufficient Permissions"),
    ],
)
def test_whatever_nvml_does_the_rest_goes_on(tmp_path: Path, nvml: str, said: str) -> None:
    out = tmp_path / "out.jsonl"
    with sampler(out, nvml=nvml):
        run = wait_for(out, said)
        before = run.events.filter(name="host_cpu_usage").height
        deadline = time.monotonic() + 10
        while run.events.filter(name="host_cpu_usage").height <= before and time.monotonic() < deadline:
            time.sleep(0.05)
            (run,) = load(out, cache=False)
        assert run.events.filter(name="host_cpu_usage").height > before
        assert sum(said in text for text in marks(run)) == 1 or nvml == "lost@30", "said once"
    if nvml == "unsupported@power":
        assert "gpu_power" not in counters(run) and "gpu_usage" in counters(run)


def test_a_driver_that_hangs_is_left_behind(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with sampler(out, nvml="hang@30"):
        before = wait_for(out, "gpu_usage", "host_cpu_usage").events.height
        time.sleep(0.3)
        assert load(out, cache=False)[0].events.height > before
    left = subprocess.run(["pgrep", "-f", str(out)], capture_output=True, text=True).stdout.split()
    assert left == [], "no process stays behind"


def test_nonsense_is_no_measurement(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with sampler(out, nvml="nonsense"):
        run = wait_for(out, "gpu_energy", "gpu_mem_used")
    assert not {"gpu_power", "gpu_temperature"} & counters(run).keys()


def test_a_process_that_is_gone_is_not_alive() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked how
    assert not is_alive(process.pid, os.getppid()), "a zombie is dead"
    process.wait()
    assert not is_alive(process.pid, os.getppid())
    assert is_alive(os.getpid(), os.getppid()) and not is_alive(os.getpid(), os.getppid() + 1)


def test_late_rounds_are_left_out() -> None:
    began, numbers = time.monotonic(), []
    for number in iter_rounds(100, lambda: time.monotonic() - began < 0.3):
        numbers.append(number)
        time.sleep(0.03)
    assert numbers == sorted(set(numbers)) and len(numbers) < 15 < numbers[-1]


def test_what_a_process_started_counts_with_it() -> None:
    """A parent that does nothing, and a child that holds 64 MB and is busy."""
    code = "held = b'x' * (64 << 20); print(flush=True)\nwhile True: len(held)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    family = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert family.stdout and family.stdout.readline() == b"\n"
        probe = build_host_probes(family.pid)["the process"]
        list(probe())
        actual: dict[str, float] = {}
        while not actual.get("process_cpu_usage"):
            actual = {sample.name: sample.value for sample in probe()}
        assert actual["process_mem_used"] > 64 << 20
    finally:
        os.killpg(family.pid, signal.SIGKILL)
        family.wait()


def test_what_ended_children_used_stays_the_familys() -> None:
    """A parent that does nothing, and two children that use half a second each and end."""
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    parent = (
        "import subprocess, sys\nprint(flush=True)\nsys.stdin.readline()\n"
        f"for _ in range(2): subprocess.run([sys.executable, '-c', {busy!r}])\n"
        "print(flush=True)\nsys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as family:
        assert family.stdin and family.stdout and family.stdout.readline() == b"\n"
        began, probe = time.monotonic(), build_host_probes(family.pid)["the process"]
        family.stdin.write(b"\n")
        assert family.stdout.readline() == b"\n"
        actual = {sample.name: sample.value for sample in probe()}
        seconds = actual["process_cpu_usage"] / 100 * (time.monotonic() - began)
        assert 0.9 <= seconds < 2.0, "theirs, counted in hundredths, with what starting Python takes"
        family.stdin.write(b"\n")


def write_domain(root: Path, folder: str, name: str, energy_uj: int, most_uj: int = 999_999) -> Path:
    """A counter as Linux shows it; the kernel names its files so."""
    place = root / folder
    place.mkdir(parents=True, exist_ok=True)
    for file, value in (("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", most_uj)):
        (place / file).write_text(f"{value}\n")
    return place


def test_energy_of_packages_and_their_memory_is_read_past_an_overflow(tmp_path: Path) -> None:
    write_domain(tmp_path, "intel-rapl:0", "package-0", 900_000)
    write_domain(tmp_path, "intel-rapl:0:0", "core", 5)
    write_domain(tmp_path, "intel-rapl:0:1", "dram", 100)
    write_domain(tmp_path, "intel-rapl:1", "package-1", 0)
    write_domain(tmp_path, "intel-rapl:2", "psys", 7)
    write_domain(tmp_path, "intel-rapl-mmio:0", "package-0", 1)  # the same package once more
    domains = EnergyDomains.find(tmp_path)
    assert domains is not None
    assert {s.track: s.value for s in domains.read_energy()} == {
        "package-0": 0, "dram of package-0": 0, "package-1": 0
    }  # fmt: skip
    write_domain(tmp_path, "intel-rapl:0", "package-0", 400_000)  # after 999,999 comes 0
    write_domain(tmp_path, "intel-rapl:1", "package-1", 250_000)
    samples = list(domains.read_energy())
    assert [(s.track, s.value) for s in samples] == [
        ("package-0", 0.5), ("dram of package-0", 0), ("package-1", 0.25)
    ]  # fmt: skip
    assert {(s.name, s.unit) for s in samples} == {("cpu_energy", "J")}


def test_machine_without_energy_counters_has_none(tmp_path: Path) -> None:
    assert EnergyDomains.find(tmp_path / "absent") is None
    write_domain(tmp_path, "intel-rapl:2", "psys", 7)
    assert EnergyDomains.find(tmp_path) is None


def test_energy_of_a_recording_equals_trapezoids_over_its_lines(tmp_path: Path) -> None:
    """Steps and sampler write one file, as `record` has it; its lines are read here by themselves."""
    out = tmp_path / "out.jsonl"
    out.touch()
    emitter = Emitter(str(out))
    emitter.run("toy", {"device": "gpu"})
    emitter.flush()
    with sampler(out, nvml="wave"):
        wait_for(out, "gpu_power")
        for step in range(20):
            begin = time.perf_counter_ns()
            time.sleep(0.02)
            took = time.perf_counter_ns() - begin
            emitter.event("step", "decode", t=begin, dur=took, step=step, phase="decode", tokens=3, batch=3)
            place = {"lens": "gpu", "track": "gpu0", "phase": "decode"}
            emitter.event("kernel", "gemm", t=begin, dur=took // 2, step=step, **place)
        emitter.flush()
        time.sleep(0.2)
    emitter.close()
    lines = [json.loads(line) for line in out.read_text().splitlines() if line]
    power = [(e["t"], e["value"]) for e in lines if e.get("name") == "gpu_power" and e["track"] == "gpu 0"]
    steps = [(e["t"], e["t"] + e["dur"]) for e in lines if e.get("kind") == "step"]
    grid = np.linspace(steps[0][0], steps[-1][1], 100_001)
    watts = np.interp(grid, *zip(*sorted(power), strict=True))
    expected = float(np.trapezoid(watts, grid)) / 1e9 / (3 * len(steps))
    assert len(power) > 5 and max(watts) > 1.2 * min(watts)
    (run,) = load(out, cache=False)
    text = dict(build_run_facts(run).select("name", "text").iter_rows())["GPU energy"]
    assert float(text.split()[0]) == pytest.approx(expected, rel=0.01)
    assert text.split()[1:4] == ["J/token", "in", "decode"]
