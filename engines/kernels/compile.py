"""Compile every kernel for GPUs that need not be here, and report on the machine code.

`python -m engines.kernels.compile [--only NAME] [--target NAME] [--first]` prints a table. It fails on
register spills, too much shared memory, narrow loads of weights, too few wide loads, and on loops with more
shuffles, barriers or instructions per weight than the `limits` of a case allow.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engines.kernels import KERNELS, load_kernel
from engines.kernels.launch_support import ARGUMENT_TYPES, STAGES, CompileCase

ALIGNED_POINTER: Final = [["tt.divisibility", 16]]
PER_WEIGHT: Final = "per_weight"
_INSTRUCTION: Final = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*(.*?);")
CUOBJDUMP: Final = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
TABLE_HEADER: Final = (
    f"{'kernel':20}{'case':34}{'target':8}{'warps':>6}{'regs':>6}{'shared':>8}{'spill':>7}{'wide/loads':>12}"
    f"{'loop':>6}{'shfl':>6}{'bar':>5}{'/weight':>9}"
)


@dataclass(frozen=True)
class CompileTarget:
    """A GPU, and the shared memory that one of its blocks may use."""

    name: str
    gpu: GPUTarget
    shared: int


TARGETS: Final = (
    CompileTarget("sm_75", GPUTarget("cuda", 75, 32), 64 << 10),
    CompileTarget("sm_80", GPUTarget("cuda", 80, 32), 163 << 10),
    CompileTarget("sm_89", GPUTarget("cuda", 89, 32), 99 << 10),
    CompileTarget("sm_90", GPUTarget("cuda", 90, 32), 227 << 10),
    CompileTarget("sm_100", GPUTarget("cuda", 100, 32), 227 << 10),
    CompileTarget("sm_120", GPUTarget("cuda", 120, 32), 99 << 10),
    CompileTarget("gfx90a", GPUTarget("hip", "gfx90a", 64), 64 << 10),
    CompileTarget("gfx942", GPUTarget("hip", "gfx942", 64), 64 << 10),
    CompileTarget("gfx1100", GPUTarget("hip", "gfx1100", 32), 64 << 10),
)


@dataclass(frozen=True)
class MachineCode:
    """Properties of the machine code of a case on a target."""

    registers: int
    shared: int
    spilled: int  # bytes of a thread's own memory: spilled registers, or arrays that got none
    narrow: int  # loads marked as read once that are below 16 bytes; where the target shows the mark
    wide: int  # loads of 16 bytes from global memory
    loads: int  # all loads from global memory
    shuffles: int = 0  # exchanges between the threads of a warp within a loop
    barriers: int = 0  # waits of a block for itself within a loop
    instructions: int = 0  # of the longest loop; 0: there is none, or the code is not taken apart, as AMD's
    per_weight: float = 0.0  # the same for each weight that a thread multiplies in a turn of it; 0: unknown

    def find_faults(self, case: CompileCase, target: CompileTarget) -> list[str]:
        faults = {
            f"spills {self.spilled} bytes": self.spilled > 0,
            f"shared memory beyond {target.shared}": self.shared > target.shared,
            f"{self.narrow} narrow loads of weights": self.narrow > 0,
            f"fewer than {case.wide} wide loads": self.wide < case.wide,
        }
        for name, most in case.limits.items():
            if name != PER_WEIGHT or target.name == "sm_90":
                count = getattr(self, name)
                faults[f"{count:.4g} {name}, {most:g} at most"] = count > most
        return [fault for fault, is_present in faults.items() if is_present]


def compile_case(case: CompileCase, target: CompileTarget) -> MachineCode:
    """Compile a case for a target; return the properties of its machine code."""
    options = {"num_warps": case.warps, "num_stages": STAGES}
    made = triton.compile(_build_source(case), target=target.gpu, options=options)
    if target.gpu.backend == "hip":
        return _inspect_amd(made.asm["amdgcn"], made.metadata.shared)
    taken_apart = _inspect_nvidia(made.asm["cubin"], made.asm["ptx"], made.metadata.shared)
    return replace(taken_apart, per_weight=taken_apart.instructions / case.weights if case.weights else 0.0)


def _build_source(case: CompileCase) -> ASTSource:
    names = case.kernel.arg_names
    types = {**ARGUMENT_TYPES, **case.types, **dict.fromkeys(case.constants, "constexpr")}
    signature = {n: types[n] for n in names}
    attrs = {(i,): ALIGNED_POINTER for i, n in enumerate(names) if signature[n].startswith("*")}
    return ASTSource(fn=case.kernel, signature=signature, constexprs=dict(case.constants), attrs=attrs)


def _inspect_nvidia(cubin: bytes, ptx: str, shared: int) -> MachineCode:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage, sass = (_run_cuobjdump(f"--dump-{what}", file.name) for what in ("resource-usage", "sass"))
    used = {key: int(n) for key, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    loads = re.findall(r"\b(?:LDG|LDGSTS)\.[\w.]+", sass)
    wide = sum(".128" in load for load in loads)
    once = re.findall(r"ld\.global\.L1::evict_first\.[\w.:]+", ptx)
    narrow = sum(".v4.b32" not in load for load in once)
    loop = find_longest_loop(sass)
    shuffles, barriers = (sum(op.startswith(kind) for op in loop) for kind in ("SHFL", "BAR"))
    spilled = used["STACK"] + used["LOCAL"]
    return MachineCode(used["REG"], shared, spilled, narrow, wide, len(loads), shuffles, barriers, len(loop))


def find_longest_loop(sass: str) -> list[str]:
    """Return the operations of the longest loop: between a backward jump and its target."""
    lines = [(int(place, 16), op, rest) for place, op, rest in _INSTRUCTION.findall(sass)]
    loops: list[list[str]] = [[]]
    for end, op, rest in lines:
        target = re.search(r"0x([0-9a-f]+)", rest) if op.startswith("BRA") else None
        if target and (start := int(target[1], 16)) < end:
            loops.append([op for place, op, _ in lines if start <= place <= end])
    return max(loops, key=len)


def _run_cuobjdump(option: str, file: str) -> str:
    return subprocess.run([str(CUOBJDUMP), option, file], capture_output=True, text=True, check=True).stdout


def _inspect_amd(assembly: str, shared: int) -> MachineCode:
    names = "vgpr_count|private_segment_fixed_size|vgpr_spill_count"
    properties = dict(re.findall(rf"\.({names}):\s+(\d+)", assembly))
    loads = re.findall(r"\b(?:global|buffer)_load_\w+", assembly)
    wide = sum(load.endswith(("dwordx4", "b128")) for load in loads)  # the latter from gfx11 on
    spilled = int(properties["private_segment_fixed_size"]) + 4 * int(properties["vgpr_spill_count"])
    return MachineCode(int(properties["vgpr_count"]), shared, spilled, 0, wide, len(loads))


def iter_cases(names: Sequence[str], *, first: bool) -> Iterator[tuple[str, CompileCase]]:
    """Iterate over all cases of these kernels, or over the first of each."""
    for name in names:
        for case in islice(load_kernel(name).cases(), 1 if first else None):
            yield name, case


def print_report(names: Sequence[str], targets: Sequence[CompileTarget], *, first: bool) -> int:
    """Print the table; return the number of lines with a violation."""
    broken = 0
    print(TABLE_HEADER)
    for name, case in iter_cases(names, first=first):
        for target in (target for target in targets if case.fits(target.name)):
            made = compile_case(case, target)
            faults = made.find_faults(case, target)
            broken += bool(faults)
            marks = "".join(f"  ! {fault}" for fault in faults)
            print(_format_line(name, case, target, made) + marks, flush=True)
    return broken


def _format_line(name: str, case: CompileCase, target: CompileTarget, made: MachineCode) -> str:
    numbers = f"{case.warps:>6}{made.registers:>6}{made.shared:>8}{made.spilled:>7}"
    in_loop = f"{made.instructions:>6}{made.shuffles:>6}{made.barriers:>5}"
    in_loop += f"{made.per_weight:>9.2f}" if made.per_weight else f"{'-':>9}"
    return f"{name:20}{case.label:34}{target.name:8}{numbers}{f'{made.wide}/{made.loads}':>12}{in_loop}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engines.kernels.compile", description=__doc__)
    parser.add_argument("--only", action="append", choices=KERNELS, help="this kernel, may be repeated")
    parser.add_argument("--target", action="append", choices=[t.name for t in TARGETS])
    parser.add_argument("--first", action="store_true", help="the first case of each kernel")
    args = parser.parse_args(argv)
    targets = [t for t in TARGETS if not args.target or t.name in args.target]
    broken = print_report(args.only or KERNELS, targets, first=args.first)
    if broken:
        print(f"{broken} broken promises", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
