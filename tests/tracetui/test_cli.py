"""The command line as an API: streams, exit codes, selection of runs."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, document, shared
from tests.tracetui.in_process import tracetui
from tracetui.cli import CommandParser
from tracetui.verbs import _options
from tracetui.verbs import open as open_verb

PROFILE = FIXTURES / "native" / "flat.jsonl"
ONE_RUN = FIXTURES / "chrome" / "torch_decode.json"


def run_process(
    *args: str | Path, env: dict[str, str] | None = None, **more: object
) -> subprocess.CompletedProcess[str]:
    """Run a process of its own, where its streams or its environment are the subject."""
    command = [sys.executable, "-m", "tracetui", *map(str, args)]
    whole = {**os.environ, "XDG_STATE_HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, env=whole, timeout=60, **more)  # type: ignore[call-overload,no-any-return]


def test_a_view_as_json() -> None:
    result = tracetui("report", "kernels", PROFILE, "--format", "json")
    actual = json.loads(result.stdout)
    assert result.returncode == 0
    assert actual["schema"] == 1 and actual["view"] == "kernels"
    assert [(r["name"], r["count"], r["total_ns"]) for r in actual["rows"]] == [
        ("mlp.down", 2, 700),
        ("attention", 2, 300),
    ]
    assert [r["name"] for r in actual["runs"]] == ["first", "second"]
    assert [r["selected"] for r in actual["runs"]] == [True, False]


def test_runs_are_chosen_by_number_and_name() -> None:
    for which in ("2", "second", "SEC"):
        actual = json.loads(tracetui("report", "kernels", PROFILE, "--run", which, "--format", "json").stdout)
        assert [r["total_ns"] for r in actual["rows"]] == [42]
    wrong = tracetui("report", "kernels", PROFILE, "--run", "third")
    assert wrong.returncode == 2
    assert "1: first, 2: second" in wrong.stderr


def steps_of(*args: str) -> list[int]:
    told = json.loads(tracetui("report", "steps", "sample:decode", "--format", "json", *args).stdout)
    return [row["step"] for row in told["rows"]]


def test_steps_are_chosen_by_number_or_by_their_state() -> None:
    every = steps_of()
    assert steps_of("--steps", "all") == every
    assert steps_of("--steps", "3:5") == steps_of("--steps", "3..5") == [3, 4, 5]
    assert steps_of("--steps", "46:") == steps_of("--steps", "46..") == [46, 47, 48]
    assert steps_of("--steps", "steady") == [step for step in every if step > 0]  # step 0 is the prefill


def test_a_report_without_a_view_is_the_summary() -> None:
    for file in ("sample:decode", PROFILE):
        assert tracetui("report", file).stdout == tracetui("report", "summary", file).stdout != ""
    assert "absent.json: no such file" in tracetui("report", "absent.json").stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("report", "nonsense", PROFILE), 2, "choose one of"),
        (("report", "kernels"), 2, "no file was named"),
        (("report", "kernels", PROFILE, "--sort", "zebra"), 2, "the columns are"),
        (("report", "kernels", PROFILE, "--filter", "("), 2, "is not a regular expression (unclosed group)"),
        (("report", "kernels", PROFILE, "--lens", "quartz"), 2, "choose one of"),
        (("report", "findings", ONE_RUN), 2, "name a second file: tracetui report findings A B"),
        (("report", "compare", ONE_RUN, "--sort", "row"), 2, "one run was given"),
        (("report", "kernels", PROFILE, "--steps", "soon"), 2, "use 10:20, 10:, 10, steady or all"),
        (("report", "kernels", PROFILE, "--steps", "steady"), 2, "no steady state found"),
        (("report", "kernels", "absent.json"), 3, "no such file"),
        (("absent.json",), 3, "no such file"),
        (("dif", PROFILE, PROFILE), 2, "did you mean tracetui diff?"),
        (("Reprot", "kernels", PROFILE), 2, "did you mean tracetui report?"),
        (("kernel", PROFILE), 2, "did you mean tracetui report kernels?"),
        (("zebra", PROFILE), 3, "zebra: no such file"),
        (("report.json",), 3, "no such file"),
        (("export", PROFILE, "-o", "out.xyz"), 2, "suffix"),
    ],
)
def test_errors_are_one_sentence_with_their_code(args: tuple[str | Path, ...], code: int, says: str) -> None:
    result = tracetui(*args)
    assert result.returncode == code
    assert says in result.stderr
    assert result.stdout == ""
    assert len([ln for ln in result.stderr.splitlines() if ln.startswith("tracetui: ")]) >= 1
    assert "Traceback" not in result.stderr


def test_a_file_that_is_nearly_called_like_a_command_is_opened(tmp_path: Path) -> None:
    (tmp_path / "dif").write_bytes(PROFILE.read_bytes())
    result = tracetui("dif", cwd=tmp_path)
    assert result.returncode == 0 and "first" in result.stdout


def test_without_a_terminal_open_prints_the_summary() -> None:
    result = tracetui(PROFILE)
    assert result.returncode == 0
    assert "first" in result.stdout and "second" in result.stdout
    assert "no terminal" in result.stderr


def test_standard_input_is_a_file_too() -> None:
    result = run_process("report", "kernels", "-", "--format", "csv", input=PROFILE.read_text())
    assert result.stdout.splitlines()[1].startswith("mlp.down,")


def test_a_folder_stands_for_its_profiles(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(PROFILE.read_bytes())
    (tmp_path / "notes.txt").write_text("nothing")
    actual = json.loads(tracetui("report", "kernels", tmp_path, "--format", "json").stdout)
    assert len(actual["runs"]) == 2


def test_a_row_is_entered_headless_too() -> None:
    actual = json.loads(
        tracetui("report", "detail", PROFILE, "--focus", "name=mlp.down", "--format", "json").stdout
    )
    assert sorted(r["dur_ns"] for r in actual["rows"]) == [300, 400]
    wrong = tracetui("report", "detail", PROFILE, "--focus", "attention")
    assert wrong.returncode == 2 and "name=attention" in wrong.stderr


@pytest.mark.parametrize(("name", "rows"), [("latencyprism/cross.md", 29), ("seed 3", 264)])
def test_every_row_of_a_table_that_a_source_states(name: str, rows: int) -> None:
    result = tracetui("report", "tables", document(name), "--focus", "table=comparison", "--format", "json")
    actual = json.loads(result.stdout)
    assert len(actual["rows"]) == rows and len(actual["columns"]) == 17


def test_a_broken_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m tracetui formats | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told() -> None:
    command = f"{sys.executable} -m tracetui formats >/dev/full"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.returncode == 3
    assert "No space left" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.corpus
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str) -> None:
    command = f"{sys.executable} -m tracetui report kernels {PROFILE} {closed}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0
    assert "Traceback" not in result.stderr


@pytest.mark.corpus
@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"TERM": "dumb"},
        {"NO_COLOR": "1"},
        {"HOME": "/nonexistent"},
        {"COLUMNS": "7"},
    ],
    ids=lambda e: next(iter(e)),
)
def test_plain_surroundings(env: dict[str, str]) -> None:
    result = run_process("report", "kernels", PROFILE, env=env)
    assert result.returncode == 0
    assert "mlp.down" in result.stdout


def test_the_overview_tells_every_command() -> None:
    result = tracetui("--help")
    from tracetui.verbs import VERBS

    assert result.returncode == 0
    assert all(name in result.stdout for name in VERBS)
    for name in VERBS:
        assert tracetui(name, "--help").returncode == 0


def test_doctor_says_what_a_file_cannot_answer() -> None:
    result = tracetui("doctor", PROFILE)
    assert "can answer: " in result.stdout
    assert "cannot answer layers: it needs layer" in result.stdout
    assert "cannot answer memory: it needs bytes and memory rows" in result.stdout
    assert "record_function" not in result.stdout  # which program wrote it is unknown


def test_a_folder_of_all_ranks_is_merged_by_itself_and_names_the_late_one() -> None:
    """Rank 1 sleeps 20 ms before each of ten collectives: rank 0 waits for it there."""
    folder = shared("samples/gloo_ranks/late")
    spans = [
        [
            event["dur"]
            for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
            if event.get("name") == "gloo:all_reduce" and event.get("ph") == "X"
        ]
        for file in sorted(folder.iterdir())
    ]
    late_ms = (sum(spans[0]) - sum(spans[1])) / len(spans[0]) / 1000
    assert late_ms == pytest.approx(20, abs=2)

    summary = json.loads(tracetui("report", "summary", "--format", "json", folder).stdout)
    (late,) = [
        row["text"] for row in summary["rows"] if "late" in (row["text"] or "") and "rank 1" in row["text"]
    ]
    assert float(re.search(r"([\d.]+) ms", late)[1]) == pytest.approx(late_ms, abs=2)
    rows = json.loads(tracetui("report", "kernels", "--format", "json", folder).stdout)["rows"]
    (collective,) = [row for row in rows if row["name"] == "gloo:all_reduce"]
    assert collective["count"] == sum(map(len, spans))
    for options in (("report", "summary", "--run", "2"), ("report", "compare")):  # each rank by itself
        assert tracetui(*options, folder).returncode == 0


def test_options_may_stand_before_files_and_a_folder_of_ranks_is_one_run(tmp_path: Path) -> None:
    for rank in range(2):
        lines = [{"kind": "run", "schema": 1, "name": "toy", "clock": [0, 10**18], "rank": rank}]
        lines += [
            {
                "kind": "kernel",
                "name": "gemv",
                "t": 100 * step,
                "dur": 10 + 5 * rank,
                "step": step,
                "rank": rank,
            }
            for step in range(3)
        ]
        (tmp_path / f"{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    one = json.loads(tracetui("report", "ranks", "--merge", "--format", "json", tmp_path).stdout)
    assert [(r["rank"], r["work_ns"], r["slowest"]) for r in one["rows"]] == [(0, 10, 0), (1, 15, 3)]
    together = json.loads(tracetui("report", "ranks", "--format", "json", tmp_path).stdout)
    assert [(r["rank"], r["work_ns"]) for r in together["rows"]] == [(0, 10), (1, 15)]
    skews = json.loads(tracetui("report", "ranks", "--group-by", "step", "--merge", *tmp_path.iterdir(),
                                "--format", "json").stdout)  # fmt: skip
    assert [r["skew_ns"] for r in skews["rows"]] == [5, 5, 5]


def test_a_number_names_no_run_by_a_part_of_its_name() -> None:
    file = FIXTURES / "latencyprism" / "two_processes.csv"
    result = tracetui("report", "kernels", file, "--run", "8")
    assert result.returncode == 2 and "no run is called '8'" in result.stderr
    assert tracetui("report", "kernels", file, "--run", "pid_8").returncode == 2  # both are
    asked = json.loads(tracetui("report", "kernels", file, "--run", "2", "--format", "json").stdout)
    assert [r["name"] for r in asked["runs"] if r["selected"]] == ["pid_817"]
    assert tracetui("diff", file, file, "--run-a", "0").returncode == 2


def test_two_files_of_several_runs_are_compared_run_by_run() -> None:
    """The process asked for of either file, in its real units; never two processes of one file."""
    folder = document("samples/latencyprism_two_pids/normal_perf_data.csv").parent
    files = [folder / f"{side}_perf_data.csv" for side in ("normal", "abnormal")]
    rows = json.loads(tracetui("report", "cycles", *files, "--format", "json").stdout)["rows"]
    clock = next(r for r in rows if r["metric"] == "gpu_frequency" and "cross_device" in r["function"])
    assert (clock["mu_a"], clock["level_a"], clock["level_b"]) == (
        pytest.approx(119142.857143), "1,191 MHz", "1,410 MHz",
    )  # fmt: skip
    assert (clock["beta_a"], clock["beta_b"]) == (pytest.approx(0.093771, abs=1e-6), pytest.approx(43.517))
    other = json.loads(tracetui("diff", *files, "--format", "json").stdout)
    assert "2 runs (1: pid_90816, 2: pid_90817)" in " ".join(other["notes"])
    reduce = next(r for r in other["rows"] if "cross_device" in r["name"])
    assert reduce["verdict"] == "slower" and reduce["total_b_ns"] > 100 * reduce["total_a_ns"]


def test_a_program_gets_an_error_as_json_too() -> None:
    for option in (("--format", "json"), ("--format=json",)):
        result = tracetui("report", "kernels", "/no/such/file", *option)
        actual = json.loads(result.stdout)["error"]
        assert result.returncode == actual["code"] == 3
        assert actual["what"] in result.stderr and actual["where"] == "/no/such/file"
    assert tracetui("report", "kernels", "/no/such/file", "--format", "csv").stdout == ""


def test_a_screen_reads_files_as_the_command_line_says() -> None:
    parser = CommandParser("tracetui open")
    open_verb.options(parser)
    args = parser.parse_args(["f", "--no-cache", "--no-limits", "--capture", "none", "--tp", "2"])
    screen = _options.build_screen_options(args, **_options.build_read_options(args))
    assert (screen.cache, screen.limits, screen.capture, screen.config.tp) == (False, False, "none", 2)


def test_a_share_is_read_with_or_without_its_sign() -> None:
    assert [_options.parse_percent(text) for text in ("3%", "3", "0.5%")] == [0.03, 0.03, 0.005]
