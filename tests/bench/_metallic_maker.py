"""Writes metallic recordings of any size, as the description of the format has them."""

import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2025, 12, 23, 10, 15, 30, tzinfo=UTC)
ENVELOPE = '{{"timestamp":"{}","span_id":null,"parent_span_id":null,"span_name":null,"event":{}}}\n'
MATMUL = "metallic::kernels::matmul_gemv::base::MatmulGemvOp/matmul/"
BLOCK = (  # stage, kernel below the doubled scope, n and k of a matmul
    ("attn_norm", "metallic::kernels::rmsnorm::RMSNormOp", None),
    ("qkv_proj", MATMUL + "gemv_qkv_fused (Q)", (1152, 896)),
    ("attn_rearrange", "metallic::kernels::kv_rearrange::KvRearrangeOp", None),
    ("rope", "metallic::kernels::rope::RoPEOp", None),
    ("kv_cache", "metallic::kernels::kv_cache_write::KvCacheWriteOp", None),
    ("sdpa", "", None),
    ("attn_output", MATMUL + "gemv_addmm (C)", (896, 896)),
    ("mlp_norm", "metallic::kernels::rmsnorm::RMSNormOp", None),
    (
        "mlp_swiglu",
        "metallic::kernels::matmul_gemv::f16_canonical_fused::MatmulF16CanonicalSwiGluRmsnormOp",
        None,
    ),
    ("mlp_output", MATMUL + "gemv_addmm (D)", (896, 4864)),
)


class Maker:
    """An engine's clock and its lines."""

    def __init__(self, blocks: int = 24, prompt: int = 46, seed: int = 1) -> None:
        draw = random.Random(seed)
        self.blocks, self.prompt = blocks, prompt
        self.pool = [int(min(33529, draw.lognormvariate(4.6, 0.6))) for _ in range(4096)]
        self.us = self.drawn = 0

    def draw(self) -> int:
        self.drawn += 1
        return self.pool[self.drawn * 7919 & 4095]

    def line(self, kind: str, data: str) -> str:
        seconds, us = divmod(self.us, 1_000_000)
        stamp = f"{(START + timedelta(seconds=seconds)):%Y-%m-%dT%H:%M:%S}"
        digits = f".{us:06d}" if us % 1000 else f".{us // 1000:03d}" if us else ""
        return ENVELOPE.format(f"{stamp}{digits}Z", f'{{"type":"{kind}","data":{data}}}')

    def event(self, kind: str, **data: object) -> str:
        return self.line(kind, json.dumps(data, separators=(",", ":")))

    def op(self, name: str, us: int, backend: str = "Metal", matmul: str = "") -> str:
        return self.line(
            "GpuOpCompleted", f'{{"op_name":"{name}","backend":"{backend}","duration_us":{us}{matmul}}}'
        )

    def internal(self, parent: str, name: str, us: int) -> str:
        data = f'{{"parent_op_name":"{parent}","internal_kernel_name":"{name}","duration_us":{us}}}'
        return self.line("InternalKernelCompleted", data)

    def start(self) -> Iterator[str]:
        parts = {"Token Embeddings": 272_269_312, "Transformer Blocks": 715_000_000}
        for block in range(1, self.blocks + 1):
            inside = f"Transformer Blocks.Weight Block {block}"
            parts |= {inside: 29_000_000, f"{inside}.Feedforward Projections": 20_000_000}
            parts |= {f"{inside}.Attention Projections": 9_000_000}
        yield self.event("GgufFileMmap", size_bytes=994_156_320)
        yield self.event("ModelWeights", total_bytes=988_097_536, breakdown=parts)
        yield self.event("ForwardStep", total_bytes=600, breakdown={"Embedding": 200, "Output": 400})
        yield self.event("TensorMemory", total_bytes=900, tensor_count=3, breakdown={"a": 400, "b": 500})

    def block(self, phase: str, b: int, step: int) -> Iterator[str]:
        began = self.us
        for stage, kernel, sizes in BLOCK:
            scope = f"{phase}/block_{b}/{stage}_block_{b}_op"
            us = self.draw()
            self.us += us
            if stage == "sdpa":
                yield self.event(
                    "KernelBackendSelected", op_name="sdpa", backend="Metal", reason="OnlyAvailable"
                )
                yield self.event(
                    "ResourceCacheAccess", cache_key=f"sdpa:Key {{ {b} }}", hit=step > 0, bytes=0
                )
            if stage == "kv_cache":
                name = f"kv_cache_write_step_{step}_layer_{b}"
                yield self.event(
                    "GpuKernelDispatched",
                    kernel_name="kv_cache_write",
                    op_name=name,
                    thread_groups=[896, 1, 1],
                )
            yield self.op(f"{scope}/{scope}/{kernel}" if kernel else scope, us, matmul=_matmul(sizes))
            yield self.op(f"{scope}/cb_wait", max(0, us - 3))
            yield self.op(f"{scope}/cb_gpu", us * 6 // 10)
        yield self.internal("generation_loop", f"forward_cpu_block_{b}", 20 + self.drawn % 9)
        yield self.internal("generation_loop", f"block_{b}_total", self.us - began + 31)

    def step(self, step: int) -> Iterator[str]:
        phase = "Prompt Processing" if step < self.prompt else "Generation Loop"
        began = self.us
        for b in range(self.blocks):
            yield from self.block(phase, b, step)
        scope, us = f"{phase}/generation_step_output", self.draw() * 20
        self.us += us
        yield self.op(f"{scope}/{scope}/{MATMUL}gemv (C)", us, "gemv", _matmul((151936, 896)))
        if phase == "Generation Loop":
            yield from self.after_forward(step, self.us - began)

    def after_forward(self, step: int, us: int) -> Iterator[str]:
        yield self.internal("generation_loop", "forward_step_total", us)
        yield self.internal("sampling", "next_token_ready_latency", 5)
        yield self.internal("sampling", "next_token_wait", 3)
        yield self.internal("decoding", "token_decode", 1)
        yield self.op("sample_topk_fused", 1300 + step % 7)
        self.us += 900
        yield self.internal("generation_loop", "iteration_total", us + 900)
        if step % 4 == 0:
            yield self.host_memory(step)
            yield self.preparation(step)

    def host_memory(self, step: int) -> str:
        pools = ("tensor_pool_reserved", "tensor_pool_used", "kv_pool_reserved", "kv_pool_used")
        blocks = {
            str(b): [f"Block {b + 1}", {"attn_norm": 3584, "sdpa": 7168 + step}] for b in range(self.blocks)
        }
        sizes = {f"{pool}_bytes": 1_000_000 + step * i for i, pool in enumerate(pools)}
        return self.event("HostMemory", total_bytes=4_000_000, **sizes, forward_pass_breakdown=blocks)

    def preparation(self, step: int) -> str:
        return self.event(
            "TensorPreparationStats",
            cache_hits=step * 90,
            cache_misses=step * 10,
            total_preparation_time_us=step * 7,
            estimated_time_saved_us=step * 63,
            hit_rate=90.0,
        )

    def lines(self) -> Iterator[str]:
        """A recording without an end."""
        yield from self.start()
        step = 0
        while True:
            yield from self.step(step)
            step += 1


def _matmul(sizes: tuple[int, int] | None) -> str:
    if sizes is None:
        return ""
    n, k = sizes
    sides = f'"batch":"1","m":"1","n":"{n}","k":"{k}","tA":"0","tB":"1"'
    return f',"data":{{"op":"matmul","backend":"gemv",{sides}}}'


def write(path: Path, lines: Iterable[str], count: int) -> None:
    with path.open("w", buffering=1 << 22) as file:
        for _, line in zip(range(count), lines, strict=False):
            file.write(line)
