"""llama-cpp-python watched: a library of the same surface, compiled here, and the real one where it is."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capture.record.llama_cpp import parse_description
from capture.record.llama_nodes import build_op

pytest.importorskip("torch")
from tests.engines import gguf_files as files

ROOT = Path(__file__).parent.parent.parent.parent
FAKE = Path(__file__).parent / "fake_llama"

DECODE = """
import ctypes, llama_cpp as L
{callback}
params = L.llama_context_params(64)
params.n_threads, params.flash_attn_type, params.type_k, params.type_v = 3, 1, 8, 1
if mine: params.cb_eval, params.cb_eval_user_data = mine, 77
context = L.llama_init_from_model(None, params)
def decode(rows):
    batch = L.llama_batch_of(rows)
    return L.llama_decode(context, batch)
decode([(i, 0) for i in range(5)])
for position in range(5, 45):
    decode([(position, 0)])
assert decode([(i, 0) for i in range(17)]) == 1
for position in range(40):
    decode([(position, sequence) for sequence in range(3)])
print(L.fake_sum(context), len(heard), heard[:60])
"""
QUIET = "mine, heard = None, []"
HEARD = """
heard = []
@L.ggml_backend_sched_eval_callback
def mine(node, asks, data):
    heard.append((bool(asks), data))
    return len(heard) % 5 != 2 if asks else {answer}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("fake"))


def built(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    out = folder / "libllama.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", *flags, "-o", out, FAKE / "llama.c"], check=True)
    return out


def run(folder: Path, library: Path | None, source: str, *command: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(source)
    paths = [str(ROOT), *([str(FAKE)] if library else []), *sys.path[1:]]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "FAKE_LLAMA": str(library)}
    return subprocess.run(
        [*command, sys.executable, str(script)], capture_output=True, text=True, timeout=100, env=env
    )


def record(
    folder: Path, library: Path | None, source: str, *options: str
) -> subprocess.CompletedProcess[str]:
    options = options or ("--quiet", "--output", str(folder / "prof.jsonl"))
    return run(folder, library, source, sys.executable, "-m", "tracetui", "record", *options, "--")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llama ?B (guessed) all F32", {"model": "llama ?B", "dtype": "fp32", "quant": "none"}),
        ("qwen2 0.5B Q4_K - Medium", {"model": "qwen2 0.5B", "quant": "Q4_K - Medium"}),
        ("llama.cpp", {"model": "llama.cpp"}),
    ],
)
def test_the_format_of_weights_is_no_part_of_the_model(text: str, expected: dict[str, str]) -> None:
    """Weights of 8 bits were another model, which is never compared."""
    assert parse_description(text) == expected


def test_a_program_does_what_it_does_alone_and_its_steps_are_seen(library: Path, tmp_path: Path) -> None:
    source = DECODE.format(callback=QUIET)
    result = record(tmp_path, library, source, "--output", str(tmp_path / "prof.jsonl"))
    assert result.returncode == 0 and result.stdout.startswith(run(tmp_path, library, source).stdout)
    assert "recorded 81 steps, 82 forwards in 1 process, 1 thread" in result.stderr
    lines = lines_of(tmp_path / "prof.jsonl")
    steps = [line for line in lines if line["kind"] == "step"]
    facts = [(s["phase"], s["step"], s["tokens"], s["batch"], s["context"]) for s in steps]
    assert facts[0] == ("prefill", 0, 5, 1, 5)
    assert facts[1:41] == [("decode", n, 1, 1, n + 5) for n in range(1, 41)]
    assert facts[41:] == [("decode", n, 3, 3, n - 40) for n in range(41, 81)]
    ends = [s["t"] + s["dur"] for s in steps]
    assert all(end == step["t"] for end, step in zip(ends[:40], steps[1:], strict=False))
    meta = next(line for line in lines if line["kind"] == "run")["meta"]
    assert (meta["model"], meta["llama_cpp"], meta["device"]) == ("fake 1B", "0.0.fake", "cpu")
    assert (meta["quant"], meta["n_ctx"]) == ("Q4_0", 64)
    assert (meta["threads"], meta["attention"], meta["kv_cache"]) == (3, "flash", "q8_0 and f16")


@pytest.mark.slow
def test_watched_steps_hold_every_node_that_computes_in_its_order(library: Path, tmp_path: Path) -> None:
    record(tmp_path, library, DECODE.format(callback=QUIET))
    lines = lines_of(tmp_path / "prof.jsonl")
    ops = {op["id"]: op for line in lines if line["kind"] == "plan" for op in line["ops"]}
    windows = {line["step"] for line in lines if line.get("op") == "window"}
    rows = {line["step"]: line for line in lines if line["kind"] == "columns"}
    assert windows and windows == set(rows) and 0 not in windows  # the first step is never slowed down
    layer = [("attn_norm mul", "norm"), ("Qcur mul_mat", "attn.q"), ("Qcur rope", "attn.rope"),
             ("cache_k set_rows", "attn.kv"), ("kqv_out cont", "attn.out"), ("kqv_wo mul_mat", "attn.out"),
             ("ffn_out mul_mat", "mlp.down")]  # fmt: skip
    wanted = [("inp_embd get_rows", "embed", None)]
    wanted += [(name, op, number) for number in (0, 1) for name, op in layer]
    wanted += [("result_norm mul", "norm", None), ("result_output mul_mat", "lm_head", None)]
    for step in windows:
        seen = [ops[number] for number in rows[step]["op"]]
        nodes = [op for op in seen if op.get("category") != "host" and op.get("op") != "sample"]
        assert [(op["name"], op["op"], op.get("layer")) for op in nodes] == wanted
        took = sum(rows[step]["dur"])
        (whole,) = (line["dur"] for line in lines if line["kind"] == "step" and line["step"] == step)
        assert took == whole  # nodes, what lies around them, the program, and our own work


@pytest.mark.corpus
@pytest.mark.parametrize("answer", ["True", "len(heard) % 11 != 3"])
def test_a_callback_of_the_program_hears_what_it_would_hear(
    answer: str, library: Path, tmp_path: Path
) -> None:
    """Its questions, its data, and what its False ends: sums and questions are those of the program alone."""
    source = DECODE.format(callback=HEARD.format(answer=answer))
    alone, result = run(tmp_path, library, source), record(tmp_path, library, source)
    assert "(True, 77), (False, 77)" in alone.stdout
    assert (result.returncode, result.stdout) == (0, alone.stdout), result.stderr


@pytest.mark.slow
def test_a_library_without_what_is_needed_is_left_alone(tmp_path: Path) -> None:
    bare = built(tmp_path, "-DWITHOUT_OPERATORS")
    source = DECODE.format(callback=QUIET)
    result = record(tmp_path, bare, source)
    assert result.stdout == run(tmp_path, bare, source).stdout
    assert result.stderr.count("this program is not recorded: AttributeError") == 1
    assert result.returncode == 5 and "the recorder stopped" in result.stderr


@pytest.mark.slow
def test_a_program_that_decodes_nothing_is_told(library: Path, tmp_path: Path) -> None:
    result = record(tmp_path, library, "import llama_cpp")
    assert result.returncode == 5
    assert "llama_cpp was imported, but none of its contexts decoded anything" in result.stderr


@pytest.mark.parametrize(
    ("name", "operator", "wanted"),
    [
        ("Qcur-3", "MUL_MAT", ("Qcur mul_mat", 3, "attn.q", "matmul")),
        ("Qcur-11", "ROPE", ("Qcur rope", 11, "attn.rope", "elementwise")),
        ("Kcur_normed-0", "MUL", ("Kcur_normed mul", 0, "norm", "norm")),
        ("cache_v_l7 (view)", "SET_ROWS", ("cache_v set_rows", 7, "attn.kv", "copy")),
        ("kq-2", "MUL_MAT", ("kq mul_mat", 2, "attn.core", "attention")),
        ("__fattn__-2", "FLASH_ATTN_EXT", ("__fattn__ flash_attn_ext", 2, "attn.core", "attention")),
        ("ffn_swiglu-4", "SWIGLU", ("ffn_swiglu swiglu", 4, "mlp.act", "elementwise")),
        ("ffn_out-11", "MUL_MAT", ("ffn_out mul_mat", 11, "mlp.down", "matmul")),
        ("l_out-25", "ADD", ("l_out add", 25, "residual", "elementwise")),
        ("result_output", "MUL_MAT", ("result_output mul_mat", None, "lm_head", "matmul")),
        ("ffn_moe_gate-5 (copy)", "MUL_MAT_ID", ("ffn_moe_gate mul_mat_id", 5, None, "matmul")),
        ("", "ADD", ("node add", None, None, "elementwise")),
    ],
)
def test_names_of_nodes(name: str, operator: str, wanted: tuple[Any, ...]) -> None:
    op = build_op(name, operator)
    assert (op["name"], op["layer"], op["op"], op["category"]) == wanted


REAL = """
import sys, time, llama_cpp
model = llama_cpp.Llama({path!r}, n_ctx=2048, verbose=False, n_threads=1)
tokens, began = [], 0.0
for token in model.generate([5, 6, 7, 8, 9], temp=0):
    began = began or time.perf_counter()
    tokens.append(token)
    if len(tokens) == 1501:
        break
print(sum(tokens), file=sys.stderr)
print(1500 / (time.perf_counter() - began))
"""


def test_the_real_library_is_watched_node_by_node(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    from tests.engines.test_gguf import WIDE, blocks_of

    stored, _ = blocks_of({"": "Q8_0"})
    spec = replace(WIDE, max_context=4096)  # long enough that the ends of the run do not matter
    path = files.write(tmp_path / "a.gguf", spec, stored, **files.vocabulary(WIDE.vocab))
    source = REAL.format(path=str(path))
    alone, result = run(tmp_path, None, source), record(tmp_path, None, source)
    assert result.returncode == 0 and result.stderr.startswith(alone.stderr)  # the same tokens
    lines = lines_of(tmp_path / "prof.jsonl")
    steps = [line for line in lines if line["kind"] == "step" and line["phase"] == "decode"]
    rate = len(steps) / ((steps[-1]["t"] + steps[-1]["dur"] - steps[0]["t"]) / 1e9)
    assert len(steps) == 1500 and rate == pytest.approx(float(result.stdout), rel=0.02)
    ops = [op for line in lines if line["kind"] == "plan" for op in line["ops"]]
    for name in ("Qcur mul_mat", "ffn_out mul_mat", "kqv_wo mul_mat"):
        assert sorted(op["layer"] for op in ops if op["name"] == name) == [0, 1], name
    assert "result_output mul_mat" in {op["name"] for op in ops}
