"""Writes a decode step as a serving engine's trace shows it; all of it is made up.

    python -m tests.capture.loaders._serving_file tests/fixtures/pictures/serving.json.gz

32 sequences, 36 layers, on a made-up clock: a stray kernel, for whose result the host waits 412 ms, then some
small ones that are launched late, then all layers, launched ahead of the device. The sizes are those of a
model of 8 billion parameters; each kernel takes what its bytes take at a stated part of the memory's speed.
"""

import gzip
import json
import random
import sys
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

LAYERS: Final = 36
BATCH, KEYS = 32, 32_785
HIDDEN, QUERY, KEY, GATED, VOCABULARY = 4096, 4096, 1024, 24_576, 151_936
MEMORY: Final = 3350.0  # bytes a ns
STRAY_US: Final = 412_300.0
CALL_US: Final = 4.5  # from one call of the host to the next


class Part(NamedTuple):
    """One call of an operator, and the kernel that it launches."""

    op: str
    kernel: str
    dims: list[list[int]]
    us: float


def product(rows: int, columns: int, kernel: str, part: float) -> Part:
    """A product of the batch with a weight, at a part of the memory's speed."""
    moved = 2 * (BATCH * rows + rows * columns + BATCH * columns)
    return Part("aten::mm", kernel, [[BATCH, rows], [rows, columns]], moved / MEMORY / part / 1e3)


NORM = Part("_C::fused_add_rms_norm", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()",
            [[BATCH, HIDDEN], [BATCH, HIDDEN], [HIDDEN]], 4.1)  # fmt: skip
ATTENTION = Part(
    "vllm::unified_attention_with_output",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, true>()",
    [[BATCH, QUERY // 128, 128], [4096, 16, KEY // 128, 128], [4096, 16, KEY // 128, 128]],
    4 * KEYS * KEY / MEMORY / 0.43 / 1e3,
)  # fmt: skip
BLOCK: Final = (
    NORM,
    product(HIDDEN, QUERY + 2 * KEY, "nvjet_tst_64x32_64x16_4x1_v_bz_TNT", 0.62),
    Part("_C::rotary_embedding", "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
         [[BATCH], [BATCH, QUERY], [BATCH, KEY]], 3.4),
    Part("_C_cache_ops::reshape_and_cache_flash", "void vllm::reshape_and_cache_flash_kernel<bfloat16>()",
         [[BATCH, KEY // 128, 128]], 3.0),
    ATTENTION,
    product(QUERY, HIDDEN, "nvjet_tst_64x16_64x16_4x1_v_bz_splitK_TNT", 0.58),
    NORM,
    product(HIDDEN, GATED, "nvjet_tst_128x32_64x10_2x1_v_bz_TNT", 0.66),
    Part("_C::silu_and_mul", "void vllm::act_and_mul_kernel<c10::BFloat16, true>(c10::BFloat16*)",
         [[BATCH, GATED // 2], [BATCH, GATED]], 4.4),
    product(GATED // 2, HIDDEN, "nvjet_tst_64x32_64x14_4x1_v_bz_splitK_TNT", 0.66),
)  # fmt: skip
PREPARED: Final = Part("aten::copy_", "void at::native::elementwise_kernel<128, 4>(int)", [[BATCH]], 2.6)
LAST: Final = (
    NORM,
    product(HIDDEN, VOCABULARY, "nvjet_tst_192x32_64x8_2x1_v_bz_TNT", 0.83),
    Part(
        "aten::argmax",
        "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp)",
        [[BATCH, VOCABULARY]],
        21.0,
    ),
)


def events() -> list[dict[str, Any]]:
    """The events of the trace, in µs."""
    rng, numbers, found = random.Random(8), count(1), list[dict[str, Any]]()
    host, free = 100.0, 0.0

    def call(part: Part) -> None:
        nonlocal host, free
        number = next(numbers)
        took = part.us * max(0.9, rng.gauss(1, 0.01))
        start = max(host + 5.2, free + 0.9)
        types = {"Input Dims": part.dims, "Input type": ["c10::BFloat16"] * len(part.dims)}
        found.append(event("cpu_op", part.op, host - 1.4, 3.8, **types, **{"External id": number}))
        found.append(event("cuda_runtime", "cudaLaunchKernel", host, 1.9, correlation=number))
        where = {"device": 0, "stream": 7, "correlation": number, "External id": number}
        found.append({**event("kernel", part.kernel, start, took, **where), "pid": 0, "tid": 7})
        host, free = host + CALL_US, start + took

    call(PREPARED)
    found.append(event("cpu_op", "aten::item", host, STRAY_US - 140))
    found.append(event("cuda_runtime", "cudaStreamSynchronize", host + 1, STRAY_US - 144))
    host = STRAY_US
    for _ in range(3):
        call(PREPARED)
        host += 160
    for part in (*LAYERS * BLOCK, *LAST):
        call(part)
    sums = f"(sq{BATCH}sk{KEYS}sqsq{BATCH}sqsk{KEYS})"
    step = f"execute_{BATCH}_context_0(sq0sk0sqsq0sqsk0)_generation_{BATCH}{sums}"
    return [event("user_annotation", step, 60.0, host - 60), *found]


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    times = {"ts": round(ts, 3), "dur": round(dur, 3)}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, **times, "args": args}


def main() -> None:
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
    text = json.dumps(
        {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events()}, separators=(",", ":")
    )
    Path(sys.argv[1]).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
