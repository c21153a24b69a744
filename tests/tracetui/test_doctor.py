"""`tracetui doctor`: the roofs that are known and the weights that lie on a machine made here."""

import json
import sys
from pathlib import Path

import pytest

from capture import build_part, device_roofs, nvidia
from capture.device_roofs import Roof
from capture.loaders import _scan as scan
from tests.engines import folders, gguf_files, tiny
from tests.tracetui.test_cli import PROFILE, run_process
from tracetui.verbs import doctor

HERE = Roof("Some CPU, 2 cores", "measured", 34.04e9, 23.5e9, {"bf16": 193.2e9}, 910.0, "cache", "2026-01-02")


def snapshot(hub: Path, name: str, sha: str = "abc") -> Path:
    folder = hub / f"models--{name.replace('/', '--')}" / "snapshots" / sha
    folder.mkdir(parents=True)
    return folder


def test_weights_are_told_for_every_model_with_what_is_refused_and_why(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    whole, _ = folders.gemma(snapshot(hub, "google/gemma-3-1b-it"), shards=2)
    (whole / "tokenizer.json").write_text("{}")
    bare, _ = folders.gemma(snapshot(hub, "google/gemma-3-270m-it"))
    binary = snapshot(hub, "Qwen/Qwen2.5-0.5B-Instruct")
    (binary / "config.json").write_text("{}")
    (binary / "pytorch_model.bin").write_bytes(b"\x80\x02")
    size = sum(p.stat().st_size for p in whole.glob("*.safetensors"))
    result = run_process("doctor", env={"HF_HUB_CACHE": str(hub)})
    actual = {line.split()[0]: line for line in result.stdout.splitlines() if line.startswith("  ")}
    assert f"weights: {hub} (HF_HUB_CACHE)\n" in result.stdout
    assert actual["gemma-3-1b"].split(maxsplit=1)[1] == (
        f"config, 2 shards, {size / 1024:.1f} KiB, tokenizer: {whole}"
    )
    assert f"no tokenizer.json: token ids in place of text: {bare}" in actual["gemma-3-270m"]
    assert (
        "refused: " in actual["qwen2.5-0.5b"]
        and "pytorch_model.bin, which can run code" in actual["qwen2.5-0.5b"]
    )
    assert "safetensors/convert-weights" in actual["qwen2.5-0.5b"]
    assert "random: none found under HuggingFaceTB/SmolLM2-135M-Instruct" in actual["smollm2-135m"]
    assert result.returncode == 0 and result.stderr == ""


def test_a_cache_that_is_not_there_is_said(tmp_path: Path) -> None:
    result = run_process("doctor", env={"HF_HUB_CACHE": "", "HF_HOME": str(tmp_path)})
    assert f"weights: {tmp_path}/hub (HF_HOME), which does not exist\n" in result.stdout


@pytest.mark.slow
def test_without_a_measurement_it_says_how_to_make_one() -> None:
    assert "roofs: none measured (tracetui doctor --measure)\n" in run_process("doctor").stdout


def test_what_is_kept_is_shown_with_where_and_when(tmp_path: Path) -> None:
    place = tmp_path / "tracetui" / "roofs.json"
    place.parent.mkdir(mode=0o700)
    place.write_text(json.dumps({"schema": 1, "roofs": [HERE.as_meta(), {**HERE.as_meta(), "torch": "1.0"}]}))
    result = run_process("doctor", env={"XDG_CACHE_HOME": str(tmp_path)})
    figures = "read 34.04 GB/s, copy 23.50 GB/s, bf16 193.2 GFLOP/s, launch floor 910 ns"
    assert f"roofs: {place}\n  Some CPU, 2 cores: {figures}\n    measured 2026-01-02\n" in result.stdout
    assert "measured 2026-01-02, torch 1.0, not used: torch is " in result.stdout


def test_a_gpu_that_was_not_measured_is_in_the_table_or_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        nvidia, "read_gpu_names", lambda: ["NVIDIA L4", "NVIDIA L4", "NVIDIA Thing", "GPU kept"]
    )
    device_roofs.save_measured_roof(Roof("GPU kept", "measured", 0.0, 9e11))
    assert list(doctor.iter_roof_lines())[1:] == [
        "  GPU kept: copy 900.0 GB/s",
        "    measured",
        "  NVIDIA L4: memory 300.0 GB/s, TFLOP/s: fp32 30.3 tf32 60 fp16 121 bf16 121 fp8 242.5 int8 242.5 "
        "fp6 242.5 fp4 242.5, power 72 W, launch floor 2.000 µs",
        "    stated by NVIDIA: https://resources.nvidia.com/en-us-data-center-overview/l4-gpu-datasheet "
        "(tracetui doctor --measure)",
        "  NVIDIA Thing: none (tracetui doctor --measure)",
    ]


def test_a_driver_that_torch_cannot_use_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the file of versions of a torch for CUDA 13.0 states it, and that of one for the processor."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "version").write_text("NVRM version: NVIDIA Kernel Module  550.54.15  Release Build\n")
    monkeypatch.setattr(nvidia, "_PROC", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    versions = tmp_path / "torch/version.py"
    versions.write_text("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")
    why = "the NVIDIA driver 550.54.15 is too old for torch's CUDA 13.0, which needs 580 or later"
    assert list(doctor.iter_driver_lines()) == [f"gpu: not used: {why}"]
    versions.write_text("cuda: Optional[str] = '12.8'\n")
    assert list(doctor.iter_driver_lines()) == []
    versions.write_text("cuda: Optional[str] = None\n")
    assert "this torch is built without CUDA" in next(doctor.iter_driver_lines())


@pytest.mark.slow
def test_measuring_keeps_what_the_next_run_and_the_next_doctor_find(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    result = run_process("doctor", "--measure", "--device", "cpu", env=env)
    place = tmp_path / "tracetui" / "roofs.json"
    assert result.returncode == 0 and f"saved in {place}:\n" in result.stdout
    (kept,) = json.loads(place.read_text())["roofs"]
    assert kept["source"] == "measured" and kept["read_bytes_per_s"] > 0 and kept["floor_ns"] > 0
    figures = result.stdout.splitlines()[1]
    assert figures in run_process("doctor", env=env).stdout


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (
            {"roof": HERE.as_meta(), "dtype": "bfloat16"},
            "34.04 GB/s, 193.2 GFLOP/s in bf16, measured 2026-01-02",
        ),
        ({"device": "NVIDIA L4"}, "300.0 GB/s, 121 TFLOP/s, stated by NVIDIA"),
        ({"device": "an abacus"}, "unknown for its device"),
    ],
)
def test_of_a_file_it_says_what_its_work_is_held_against(
    meta: dict[str, object], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    rows = [
        {"kind": "run", "name": "r", "meta": meta},
        {"kind": "kernel", "name": "k", "dur": 5, "bytes": 9.0},
    ]
    path.write_text("".join(json.dumps({"schema": 1, **row}) + "\n" for row in rows))
    assert f"\n  roof: {said}\n" in run_process("doctor", path).stdout


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--measure", PROFILE), 2, "takes no file"),
        (("--measure", "--device", "warp"), 2, "choose one of"),
        (("--why", "gemm"), 2, "name the file"),
    ],
)
def test_what_cannot_be_asked(args: tuple[str | Path, ...], code: int, says: str) -> None:
    result = run_process("doctor", *args)
    assert result.returncode == code and says in result.stderr


def test_files_of_one_job_are_judged_together(tmp_path: Path) -> None:
    """A file of each of two ranks: neither alone can feed the view of ranks."""
    files = [tmp_path / f"rank{i}.jsonl" for i in range(2)]
    for file in files:
        kernel = {"kind": "kernel", "name": "gemm", "step": 1, "dur": 5, "lens": "gpu", "phase": "decode"}
        lines = ({"kind": "run", "schema": 1, "name": "toy", "meta": {"model": "toy"}}, kernel)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    apart = run_process("doctor", *files).stdout
    assert apart.count("cannot answer ranks") == 2
    together = run_process("doctor", "--merge", *files).stdout
    assert "cannot answer ranks" not in together and together.count("can answer:") == 1


def test_why_a_kernel_has_its_op(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    kernels = [{"kind": "kernel", "name": name, "dur": 5} for name in ("void rms_norm<float>(int)", "gemm")]
    rows = [{"kind": "run", "name": "r"}, *kernels]
    path.write_text("".join(json.dumps({"schema": 1, **row}) + "\n" for row in rows))
    assert run_process("doctor", path, "--why", "NORM").stdout == (
        f"{path}: run 'r', 1 kinds of kernels with 'NORM'\n"
        "  void rms_norm<float>(int)\n"
        "    short: rms_norm\n"
        "    op norm, category norm\n"
        "    rule norm, by the name: rms_norm\n"
    )


def test_why_layers_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    names = [f"kernel_{i % 13}_{i % 7}_{i * i % 11}" for i in range(120)]
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": 10 * at, "dur": 5, "pid": 0, "tid": 7,
         "args": {"stream": 7, "device": 0}}
        for at, name in enumerate(names)
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    lines = run_process("doctor", path, "--why", "kernel_1_").stdout
    assert "layers are unknown: no attention or state-space kernel repeats" in lines


def test_own_rules_are_shown_with_what_is_wrong_with_them(tmp_path: Path) -> None:
    rules = tmp_path / "tracetui" / "rules"
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert f"user rules for kernel names: none in {rules}\n" in run_process("doctor", env=env).stdout
    rules.parent.mkdir()
    rules.write_text("# mine\nmy_gemm mlp.up matmul\nmy_.* - copy\ngemm nonsense\n")
    assert (
        f"user rules for kernel names: 2 in {rules}\n"
        "  line 2: my_gemm → mlp.up, matmul\n"
        "  line 3: my_.* → -, copy\n"
        "  wrong: line 4: needs a regular expression, an op and a category\n"
    ) in run_process("doctor", env=env).stdout


def test_what_else_lies_here_is_told_with_the_name_to_type(tmp_path: Path) -> None:
    hub, models = tmp_path / "hub", tmp_path / "models"
    own, _ = folders.gemma(snapshot(hub, "someone/own-gemma"))
    spec = tiny.SPECS["qwen2"]
    blob = models / "blobs" / f"sha256-{'ab' * 32}"
    blob.parent.mkdir(parents=True)
    gguf_files.write(blob, spec, gguf_files.converted(spec, tiny.weights(spec)), **{"general.file_type": 0})
    manifest = models / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "1b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{'ab' * 32}"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    result = run_process("doctor", env={"HF_HUB_CACHE": str(hub), "OLLAMA_MODELS": str(models)})
    actual = {line.split()[0]: line for line in result.stdout.splitlines() if line.startswith("  ")}
    assert f"Ollama: {models}\n" in result.stdout
    assert actual["someone/own-gemma"].endswith(f"1 shard, {told_size(own)}, no tokenizer.json: "
                                              f"token ids in place of text: {own}")  # fmt: skip
    assert actual["tiny:1b"].endswith(f"F32, {blob.stat().st_size / 1024:.1f} KiB: {blob}")


def told_size(folder: Path) -> str:
    return f"{sum(p.stat().st_size for p in folder.glob('*.safetensors')) / 1024:.1f} KiB"


@pytest.mark.slow
def test_whether_the_compiled_scanner_reads_is_said() -> None:
    off = run_process("doctor", env={"TRACETUI_NO_COMPILED": "1"}).stdout
    assert "compiled scanner of Chrome traces: off (TRACETUI_NO_COMPILED is set)\n" in off
    output = "in use" if scan.load_scanner() else "not built; the slower readers give the same"
    assert f"compiled scanner of Chrome traces: {output}\n" in run_process("doctor").stdout


def test_why_a_part_cannot_be_built_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/compiler")
    source = Path(scan.__file__).with_name("_events.c")
    assert build_part.build(source).startswith("the C compiler cannot be started: ")
    monkeypatch.setenv("CC", "false")
    assert build_part.build(source).startswith("the C compiler failed: ")
    monkeypatch.delenv("CC")
    monkeypatch.setattr(build_part.shutil, "which", lambda name: None)
    assert build_part.build(source) == "no C compiler found"


def test_a_roof_by_name_is_shown_with_both_kinds_and_their_sources() -> None:
    out = run_process("doctor", "--roof", "AMD Instinct MI300X").stdout
    assert "stated by AMD: memory 5,300 GB/s, TFLOP/s: fp64 163.4" in out and "bf16 1307.4" in out
    assert "achievable by AMD (benchmark of its library): TFLOP/s: fp16 654 bf16 708 fp8 1273" in out
    assert "rocm.blogs.amd.com" in out and "held against: --roof, else what the recording measured" in out


def test_a_name_without_a_roof_is_a_usage_error() -> None:
    result = run_process("doctor", "--roof", "an abacus")
    assert result.returncode == 2 and "no roof is known of 'an abacus'" in result.stderr
