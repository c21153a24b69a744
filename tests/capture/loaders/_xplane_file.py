"""XLA profiles made field by field from the published schema (xplane.proto).

`python -m tests.capture.loaders._xplane_file` writes them as the fixtures of the format.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.capture.loaders._wire import message
from tests.conftest import FIXTURES

EPOCH: Final = 1_750_000_000_000_000_000
STATS: Final = ("correlation_id", "kernel_details", "step_num", "tf_op", "unread", "hlo_module")


def stat(name: str, value: Any) -> bytes:
    """An XStat: text, a number, or a float."""
    kinds = {str: 5, int: 4, float: 2}
    return message((1, STATS.index(name) + 1), (kinds[type(value)], value))


def refers(name: str, to: int) -> bytes:
    """An XStat whose text is the name of another statistic."""
    return message((1, STATS.index(name) + 1), (7, to))


Event = tuple[int, int, int, Mapping[str, Any]]  # number, offset and duration in ps, statistics


def line(id: int, name: str, events: Sequence[Event], start: int = EPOCH) -> bytes:
    written = [
        message((1, n), (2, offset), (3, dur), *((4, stat(k, v)) for k, v in stats.items()))
        for n, offset, dur, stats in events
    ]
    return message((1, id), (2, name), (3, start), *((4, event) for event in written))


def plane(id: int, name: str, lines: Sequence[bytes], titles: Mapping[int, str]) -> bytes:
    known = [message((1, n), (2, message((1, n), (2, title)))) for n, title in titles.items()]
    stats = [message((1, n), (2, message((1, n), (2, s)))) for n, s in enumerate(STATS, start=1)]
    return message(
        (1, id), (2, name), *((3, each) for each in lines), *((4, k) for k in known), *((5, s) for s in stats)
    )


def space(*planes: bytes) -> bytes:
    return message(*((1, each) for each in planes), (4, "host"))


def jax_gpu() -> bytes:
    """A step on a GPU: two kernels and a copy on a stream, their launches, a step of the host around them."""
    details = "regs:64 static_shared:1024 dynamic_shared:512 grid:32,2,1 block:128,1,1 occ_pct:50"
    scope = "jit(step)/transformer/layer_3/attn/dot_general:"
    gpu = plane(
        1,
        "/device:GPU:0",
        [
            line(
                14,
                "Stream #14(Compute,MemcpyD2H)",
                [
                    (
                        1,
                        5_000_000,
                        3_000_400,
                        {"correlation_id": 7, "kernel_details": details, "tf_op": scope},
                    ),
                    (2, 9_000_000, 499_600, {"correlation_id": 8}),
                    (3, 9_600_000, 200_000, {"correlation_id": 9}),
                ],
            )
        ],
        {1: "gemm_fusion_dot_5", 2: "loop_add_fusion", 3: "MemcpyD2H"},
    )
    calls = plane(
        2,
        "/host:CUPTI",
        [
            line(
                40,
                "python",
                [
                    (1, 1_000_000, 500_000, {"correlation_id": 7}),
                    (1, 2_000_000, 500_000, {"correlation_id": 8}),
                    (2, 3_000_000, 500_000, {"correlation_id": 9}),
                ],
            )
        ],
        {1: "cuLaunchKernel", 2: "cuMemcpyDtoHAsync"},
    )
    host = plane(
        3,
        "/host:CPU",
        [line(40, "python", [(1, 500_000, 12_000_000, {"step_num": 3}), (2, 800_000, 3_000_000, {})])],
        {1: "train", 2: "PjitFunction(step)"},
    )
    return space(plane(4, "/host:metadata", [], {}), host, calls, gpu)


def tpu() -> bytes:
    """A TPU: steps and modules cover the operations, which are the work."""
    scope = "jit(step)/decoder/layer_0/mlp/dot_general"
    lines = [
        line(1, "Steps", [(1, 0, 9_000_000, {}), (2, 10_000_000, 8_000_000, {})]),
        line(2, "XLA Modules", [(3, 0, 8_500_000, {})]),
        line(3, "XLA Ops", [(4, 100_000, 4_000_000, {"tf_op": scope}), (5, 10_200_000, 3_000_000, {})]),
    ]
    titles = {1: "5", 2: "6", 3: "jit_step(123)", 4: "fusion.12", 5: "all-reduce.3"}
    return space(plane(1, "/device:TPU:0", lines, titles))


FILES: Final = {"jax_gpu.xplane.pb": jax_gpu, "tpu.xplane.pb": tpu}


def main() -> None:
    folder = FIXTURES / "xplane"
    folder.mkdir(exist_ok=True)
    for name, make in FILES.items():
        (folder / name).write_bytes(make())


if __name__ == "__main__":
    main()
