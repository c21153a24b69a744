"""The kernels without a GPU: their arithmetic under the interpreter, their machine code by compiling it."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engines import kernels
from engines.kernels import KERNELS, is_available, load_kernel
from tests.engines.kernels import first_cases

ROOT = Path(__file__).parents[3]
needs_triton = pytest.mark.skipif(not is_available(), reason="triton is not installed here")


def test_importing_the_folder_needs_no_triton() -> None:
    code = "import sys, engines.kernels; print('triton' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert result.stdout.strip() == "False"


@needs_triton
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_reference_a_launcher_and_cases(name: str) -> None:
    module = load_kernel(name)
    assert callable(module.reference) and callable(module.launch)
    assert list(module.cases())


OTHER = {
    "gemv": "def merge(partial, out):\n    out.copy_(partial.sum(0))\n",
    "rows_product": "launch = None\nis_one_by_one = lambda x: len(x) == 1\n",
    "w4a16_gemv": """
def choose_split(rows):
    return 2

def launch(x, words, out, *, scales):
    fields = (words[..., None] >> torch.arange(0, 32, 4, dtype=torch.int32)) & 0xF
    weight = ((fields.view(len(words), -1, 32) - 7.0) * scales[..., None]).flatten(1)
    out.zero_()[0] = x @ weight.T
""",
}


def test_a_backend_stands_beside_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with modules of the same names: whoever multiplies does not know which one it is."""
    import torch

    from engines.weights import low_bit, quantised_storage

    (package := tmp_path / "other_kernels").mkdir()
    for name, source in OTHER.items():
        (package / f"{name}.py").write_text(f"import torch\n{source}")
    monkeypatch.syspath_prepend(tmp_path)
    other = kernels.Backend("other", "other_kernels", lambda device: f"not for {device}")
    monkeypatch.setattr(kernels, "BACKEND", other)
    assert kernels.explain_refusal("cuda") == "not for cuda"
    packed = low_bit.pack(torch.randn(12, 64), low_bit.QUANT_FORMATS["q4f16_1"])
    x = torch.randn(1, 64)
    assert torch.allclose(quantised_storage.TritonMatrix(packed)(x), x @ packed.unpack().T, atol=1e-5)


@needs_triton
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cases", ["first", pytest.param("others", marks=pytest.mark.slow)])
def test_kernels_under_the_interpreter_equal_their_references(cases: str) -> None:
    """In a process of its own: the interpreter is chosen before a kernel is defined."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        "-p", first_cases.__name__, "-o", "python_files=check_*.py", "-o", "addopts=",
        "tests/engines/kernels",
    ]  # fmt: skip
    environment = {"TRITON_INTERPRET": "1"} | ({first_cases.OTHERS: "1"} if cases == "others" else {})
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout and "skipped" not in result.stdout


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.corpus
@needs_triton
@pytest.mark.parametrize("name", KERNELS)
def test_machine_code_keeps_its_promises(name: str, cache: None) -> None:
    """The first case of each kernel on one target of each maker; `make kernels` does all of them on all."""
    from engines.kernels.compile import TARGETS, compile_case, iter_cases

    for _, case in iter_cases([name], first=True):
        for target in TARGETS:
            if target.name in ("sm_90", "gfx942"):
                made = compile_case(case, target)
                assert made.find_faults(case, target) == []
                assert made.registers > 0 and made.loads > 0


@pytest.mark.slow
@needs_triton
def test_broken_promises_are_found(cache: None) -> None:
    from engines.kernels.compile import TARGETS, compile_case

    sm_90 = next(target for target in TARGETS if target.name == "sm_90")
    case = next(load_kernel("gemv").cases())
    ragged = replace(case, constants={**case.constants, "K": 1151})
    made = compile_case(ragged, sm_90)
    assert made.narrow > 0
    assert any("narrow" in fault for fault in made.find_faults(ragged, sm_90))
    greedy = replace(case, warps=1, constants={**case.constants, "BLOCK_N": 32, "BLOCK_C": 1024})
    made = compile_case(greedy, sm_90)
    assert made.spilled > 0
    assert any("spills" in fault for fault in made.find_faults(greedy, sm_90))
    assert made.shuffles + made.barriers == 0, "no limit is broken"
    waiting = replace(case, limits={"registers": 8})
    assert any("registers, 8 at most" in fault for fault in made.find_faults(waiting, sm_90))
    small = replace(sm_90, shared=16)
    assert any("shared" in fault for fault in compile_case(case, small).find_faults(case, small))


@needs_triton
def test_machine_code_that_spills_or_loads_narrowly_is_a_fault() -> None:
    """Without compiling: what was measured is judged."""
    from engines.kernels.compile import TARGETS, MachineCode

    case = replace(next(load_kernel("gemv").cases()), wide=2, limits={"barriers": 1})
    good = MachineCode(registers=32, shared=0, spilled=0, narrow=0, wide=2, loads=4, barriers=1)
    assert good.find_faults(case, TARGETS[0]) == []
    for fault, output in (
        ({"spilled": 8}, "spills 8 bytes"),
        ({"shared": TARGETS[0].shared + 1}, "shared memory beyond"),
        ({"narrow": 1}, "1 narrow loads"),
        ({"wide": 1}, "fewer than 2 wide loads"),
        ({"barriers": 2}, "2 barriers, 1 at most"),
    ):
        (text,) = replace(good, **fault).find_faults(case, TARGETS[0])
        assert output in text


@needs_triton
def test_launches_state_their_work() -> None:
    """For a row of the head of llama-3.2-1b: two flops a weight; what is stored is what is read."""
    import torch

    from engines.kernels.launch_support import make_metadata

    with torch.device("meta"):
        arguments = {
            "x": torch.empty(1, 2048, dtype=torch.float16),
            "out": torch.empty(1, 128256, dtype=torch.float16),
            "weight": torch.empty(128256, 256, dtype=torch.int32),
            "scales": torch.empty(128256, 64, dtype=torch.float16), "ROWS": 1, "K": 2048,
        }  # fmt: skip
    stated = make_metadata(32, load_kernel("w4a16_gemv").compute_product_work)(
        None, type("Made", (), {"name": "w4a16"}), arguments
    )
    weights = 128256 * 2048
    assert stated == {
        "name": "w4a16",
        "flops32": 2 * weights,
        "bytes": weights * 4.5 / 8 + 2 * (2048 + 128256),
    }


def test_the_longest_loop_is_what_is_counted() -> None:
    """Two loops as the disassembler prints them: the second, of three operations, waits once."""
    pytest.importorskip("triton")
    from engines.kernels.compile import find_longest_loop

    sass = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0020*/               @P0 BRA 0x10 ;
        /*0030*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0040*/              @!P1 SHFL.BFLY PT, R3, R2, 0x1, 0x1f ;
        /*0050*/               @P1 BRA 0x30 ;
        /*0060*/                   BRA 0x80 ;
    """
    assert find_longest_loop(sass) == ["BAR.SYNC.DEFER_BLOCKING", "SHFL.BFLY", "BRA"]
    assert find_longest_loop("/*0000*/ EXIT ;") == []
