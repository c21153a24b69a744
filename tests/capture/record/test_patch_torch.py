"""Attaching: a program that knows nothing of us is recorded, and runs as it would alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch

import capture.record
from capture.load_runs import load
from capture.merge_ranks import map_tracks_to_ranks
from capture.native.emit import Emitter
from capture.native.schema import RECORDING_NAME
from capture.record.op_ids import PROGRAM_PARTS
from capture.record.process_notes import RUN_VARIABLE
from capture.record.process_recording import ProcessRecording
from capture.run import Run

pytestmark = pytest.mark.xdist_group("patch_torch")  # one recording for all

TINY = Path(__file__).parent / "tiny.py"
SITE = Path(capture.record.__file__).parent / "site"
LAYERS = [0, 1, 2]


def start(folder: Path, mode: str) -> subprocess.Popen[str]:
    env = os.environ | {"TRACETUI_OUT": str(folder / f"{mode}.jsonl"), "PYTHONPATH": str(SITE)}
    return subprocess.Popen(
        [sys.executable, str(TINY), mode], env=env, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("attach")
    programs = {mode: start(folder, mode) for mode in ("fail", "train")}
    for mode, program in programs.items():
        out, errors = program.communicate(timeout=100)
        assert (out, program.returncode) == ("done\n", 7 if mode == "fail" else 0), errors
        assert "tracetui" not in errors
    return {mode: load(folder / f"{mode}.jsonl", cache=False)[0] for mode in programs}


def counts(run: Run, lens: str, phase: str | None) -> dict[str, int]:
    rows = run.events.filter((pl.col("kind") == "kernel") & (pl.col("lens") == lens))
    rows = rows.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.Categorical())))
    return {str(name): n for name, n in rows.group_by("name").len().rows()}


def test_decode_steps_phases_and_context(recordings: dict[str, Run]) -> None:
    run = recordings["fail"]
    steps = run.events.filter(kind="step").select("name", "step", "phase", "context")
    assert steps.rows() == [
        ("prefill", 0, "prefill", 8), *(("decode", n, "decode", 8 + n) for n in range(1, 13)),
    ]  # fmt: skip
    assert run.meta["model"] == "Tiny" and run.meta["device"] == "cpu"
    work = {key: run.meta.get(key) for key in ("dtype", "quant", "compiled", "layers")}
    assert work == {"dtype": "float32", "quant": "none", "compiled": False, "layers": None}
    assert run.meta["parameters"] > 0 and run.meta["threads"] >= 1
    assert run.log.notices == ()


def test_every_module_of_every_step_is_a_row(recordings: dict[str, Run]) -> None:
    """3 layers × 12 decode steps of each of a layer's modules, 12 of the others; ours is no kernel."""
    assert counts(recordings["fail"], "wall", "decode") == {
        "self_attn.q_proj": 36, "self_attn.k_proj": 36, "self_attn.v_proj": 36, "self_attn.o_proj": 36,
        "self_attn (own work)": 36, "norm": 36, "mlp": 36, "layer (own work)": 36,
        "embed": 12, "lm_head": 12, "Tiny (own work)": 12, "sampling and host": 12,
    }  # fmt: skip
    assert PROGRAM_PARTS["recording"]["name"] == RECORDING_NAME
    recorder = recordings["fail"].events.filter(pl.col("name") == RECORDING_NAME, phase="decode")
    assert set(recorder["kind"].cast(pl.String)) == {"span"} and recorder.height == 12
    own = recordings["fail"].events.filter(name="self_attn (own work)")
    assert set(own["op"].cast(pl.String)) == {"attn.core"}
    assert sorted(own["layer"].unique()) == LAYERS


def test_the_rows_of_a_step_add_up_to_no_more_than_its_wall_time(recordings: dict[str, Run]) -> None:
    events = recordings["fail"].events
    rows = events.filter((pl.col("kind") == "kernel") & (pl.col("lens") == "wall"))
    spent = dict(rows.group_by("step").agg(pl.col("dur").sum()).rows())
    for step, wall in events.filter(kind="step").select("step", "dur").iter_rows():
        assert 0 < spent[step] <= wall


def test_ops_of_windows_stand_for_all_steps(recordings: dict[str, Run]) -> None:
    """Attention runs three times in each of the twelve decode steps, watched or not."""
    run = recordings["fail"]
    windows = run.events.filter((pl.col("kind") == "span") & (pl.col("op") == "window"))
    seen = run.events.filter(name="aten::scaled_dot_product_attention")
    assert set(windows["lens"].cast(pl.String)) == {"host"} and windows["dur"].null_count() == windows.height
    assert set(windows["step"]) == set(seen["step"]) and 0 < windows.height < 13
    assert seen.height == 3 * windows.height


def test_ops_are_told_to_their_modules(recordings: dict[str, Run]) -> None:
    run = recordings["fail"]
    actual = run.events.filter(name="aten::scaled_dot_product_attention").select("layer", "path", "step")
    first = actual["step"].min()
    assert actual.filter(step=first).select("layer", "path").rows() == [
        (n, f"layers / {n} / self_attn / aten::scaled_dot_product_attention") for n in LAYERS
    ]


def test_backward_and_optimizer_are_told_apart(recordings: dict[str, Run]) -> None:
    run = recordings["train"]
    steps = run.events.filter(kind="step")
    assert steps.select("name", "step").rows() == [("step", n) for n in range(1, 7)]
    windows = run.events.filter(name="BmmBackward0")["step"].n_unique()
    assert windows >= 1
    backward = counts(run, "host", "backward")
    assert backward["NativeLayerNormBackward0"] == 3 * windows
    assert backward["AddmmBackward0"] == 16 * windows, "3 layers of 5 linears, and the head"
    norms = run.events.filter(name="NativeLayerNormBackward0")
    assert sorted(norms["layer"].unique()) == LAYERS
    products = run.events.filter(name="AddmmBackward0")["path"].cast(pl.String)
    of_layer = ("self_attn / q_proj", "self_attn / k_proj", "self_attn / v_proj", "self_attn / o_proj", "mlp")
    modules = ["lm_head", *(f"layers / {n} / {module}" for n in LAYERS for module in of_layer)]
    assert sorted(products) == sorted(f"{module} / AddmmBackward0" for module in modules * windows)
    assert "aten::addcdiv_" in counts(run, "host", "optimizer")


def test_backward_work_that_belongs_to_no_module_is_told_so(recordings: dict[str, Run]) -> None:
    """The program flattens the logits itself; gradients are added up for nobody in particular."""
    run = recordings["train"]
    known = run.events.filter((pl.col("lens") == "host") & (pl.col("phase") == "backward"))
    windows = run.events.filter(name="BmmBackward0")["step"].n_unique()
    path = known["path"].cast(pl.String)
    assert (
        known.filter(path == known["name"].cast(pl.String))["name"].to_list() == ["ViewBackward0"] * windows
    )
    assert path.str.starts_with("gradients / ").sum() == (3 * 12 + 3) * windows, "parameters"


def test_a_program_that_writes_by_itself_is_left_alone(tmp_path: Path) -> None:
    emitter = Emitter(tmp_path / "own.jsonl")
    assert not ProcessRecording().open(torch.nn.Linear(2, 2))
    emitter.close()


def test_without_the_variable_nothing_happens_and_the_hidden_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the hidden one')")
    code = "import sys; print([f for f in sys.meta_path if 'Torch' in str(f)], 'capture' in sys.modules)"
    env = {"PYTHONPATH": os.pathsep.join([str(SITE), str(tmp_path)]), "PATH": os.environ["PATH"]}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["the hidden one", "[] False"]


def test_the_program_finds_no_package_of_ours_on_its_path(tmp_path: Path) -> None:
    """Our package is found for the hooks alone; where they cannot be installed one line says why."""
    torch = tmp_path / "torch.py"
    torch.write_text("value = 1\nclass nn:\n    Module = 5\n")
    code = f"import torch, sys; print(torch.value, {str(SITE.parent.parent.parent)!r} in sys.path)"
    env = {"PYTHONPATH": os.pathsep.join([str(SITE), str(tmp_path)]), "TRACETUI_OUT": str(tmp_path / "o")}
    command = [sys.executable, "-S", "-c", f"import sitecustomize\n{code}"]
    result = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["1", "False"]
    assert re.fullmatch(
        r"tracetui: this program is not recorded: AttributeError: .*'int' .* has no attribute '__call__'.*\n",
        result.stderr,
    )


def test_ranks_of_one_launch_write_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that torchrun starts, played one after the other."""
    out = tmp_path / "out.jsonl"
    monkeypatch.setenv("TRACETUI_OUT", str(out))
    for number in range(2):
        actual = {"RANK": number, "WORLD_SIZE": 2, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": 2}
        for name, value in actual.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setenv(RUN_VARIABLE, "")
        recording = ProcessRecording()
        assert recording.open(torch.nn.Linear(2, 2))
        recording.write_step(10 * number, 5, [], None, None)
        recording.close()
    (run,) = load(out, cache=False)
    assert map_tracks_to_ranks(run) == {"rank 0": 0, "rank 1": 1}
