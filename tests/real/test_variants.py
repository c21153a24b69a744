"""Pairs of runs of small programs with one known difference each, and the first lines of `tracetui diff`."""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from capture.load_runs import load
from tests.real import PROGRAMS, find_program
from tests.real.pairs import list_false_words, read_first_lines, read_ratios, record
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.equal_work import UNEQUAL_WORK
from tracetui.look import Look

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Pair(NamedTuple):
    """The options of both sides, and what the first lines name: by `record`, and by torch.profiler."""

    a: str
    b: str
    recorded: str
    traced: str
    is_work: bool = False


IMAGES: Final = "images --batch 4"
PAIRS: Final = {
    "channels last": Pair(
        IMAGES, f"{IMAGES} --channels-last", "memory format channels first and channels last", "memory format"
    ),
    "grad": Pair("text", "text --grad", "autograd no and yes", "autograd no and yes"),
    "grad of images": Pair(f"{IMAGES} --grad", IMAGES, "autograd yes and no", "autograd yes and no"),
    "sample": Pair("generate", "generate --sample", "--sample", "topk|sort|multinomial"),
    "bucket": Pair(
        "text --length 96", "text --length 128", "input 2x96 and 2x128", "context|tokens", is_work=True
    ),
    "int8 of an LSTM": Pair("sequence", "sequence --quant", "quant none and", "quant"),
    "beams": Pair("generate", "generate --beams 3", "beams 1 and 3", "batch", is_work=True),
    "eager attention": Pair("text", "text --attn eager", "attention sdpa and eager", "bmm"),
    "vocabulary": Pair(
        "generate --vocab 2048", "generate --vocab 32000", "parameters", "weights of products", is_work=True
    ),
    "micro batches": Pair(
        "images --batch 8", "images --batch 8 --micro 4", "batch 8 and 2", "products in all", is_work=True
    ),
    "autocast": Pair("text", "text --autocast", "autocast", "dtype fp32 and bf16"),
    "dropout": Pair("text", "text --train", "train mode no and yes", "bernoulli|attention math"),
    "no cache": Pair("generate", "generate --no-cache", "KV cache", "tokens per step", is_work=True),
    "nothing, LSTM": Pair("sequence", "sequence", "", ""),
    "nothing, images": Pair(IMAGES, IMAGES, "", ""),
    "nothing, generate": Pair("generate", "generate", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_the_difference_of_a_pair_is_named_by_either_source(name: str, tmp_path: Path) -> None:
    """Named if a file says it, no verdict on other work, none that the program's own clock contradicts."""
    pair, python = PAIRS[name], find_program("host")
    files = tmp_path / "a", tmp_path / "b"
    for path, options in zip(files, (pair.a, pair.b), strict=True):
        record(python, path, tuple(options.split()), "variants.py")
    for kind, named in (("jsonl", pair.recorded), ("json", pair.traced)):
        compared = compare_runs([load(p.with_suffix(f".{kind}"), cache=False)[0] for p in files], Look())
        ratio, _ = read_ratios(files, kind)
        is_equal = pair.a == pair.b
        faults = list_false_words(compared, named, ratio, is_work=pair.is_work, is_equal=is_equal)
        assert not faults, (kind, *read_first_lines(compared))


def name_differences(a: Path, b: Path) -> list[str]:
    compared = compare_runs([load(path, cache=False)[0] for path in (a, b)], Look())
    is_unequal = any(work.is_work for work in compared.works)
    assert read_first_lines(compared)[0].startswith(UNEQUAL_WORK) == is_unequal
    return [str(work) for work in compared.works]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "", ""),
        ("", "--dtype bfloat16", "dtype fp32 and bf16"),
        ("", "--layers 6", "passes of a loop 4 and 6"),
        ("--unroll", "--unroll --layers 6", "repeats of all operations 4 and 6"),
        ("", "--batch 64", "inputs of the program 32x256 and 64x256"),
        ("", "--donate", "donated inputs 0 and 1"),
    ],
)
def test_the_difference_of_two_runs_of_jax_is_named(a: str, b: str, expected: str, tmp_path: Path) -> None:
    """The profile has the inputs of the program, also for the Chrome trace next to it."""
    for name, options in (("a", a), ("b", b)):
        program = [find_program("jax"), str(PROGRAMS / "jax_variants.py"), str(tmp_path / name)]
        subprocess.run([*program, *options.split()], capture_output=True, check=True)
    for suffix in ("xplane.pb", "trace.json.gz"):
        files = [next((tmp_path / name).rglob(f"*.{suffix}")) for name in "ab"]
        named = [n for n in name_differences(*files) if not n.startswith("XLA operations")]
        assert named == [expected] * bool(expected)


def test_threads_of_onnxruntime_are_named(tmp_path: Path) -> None:
    for name, threads in (("a", "1"), ("again", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        program = [find_program("host"), str(PROGRAMS / "onnx_graph.py"), str(tmp_path / name), "12", threads]
        subprocess.run(program, capture_output=True, check=True)
    a, again, b = (tmp_path / name / "profile.json" for name in ("a", "again", "b"))
    assert name_differences(a, b) == ["threads 1 and 2"] and name_differences(a, again) == []
