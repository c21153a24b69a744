"""Windows of kernels: whose work each row is, what speaks against a window, how often one may open."""

from capture.record.profiler_windows import LeafWork, ProfilerEvent, WindowBudget, extract_leaf_work

US = 1000


def cpu(name: str, start: int, end: int, id: int = 0, **more: int) -> ProfilerEvent:
    return ProfilerEvent(name, start * US, end * US, correlation=id, thread=more.pop("thread", 1), **more)


def launch(id: int, start: int, name: str = "cudaLaunchKernel") -> ProfilerEvent:
    return ProfilerEvent(name, start * US, (start + 1) * US, correlation=id, kind="cuda_runtime")


def kernel(name: str, id: int, linked: int, start: int, end: int, kind: str = "kernel") -> ProfilerEvent:
    return ProfilerEvent(name, start * US, end * US, id, linked, kind, device=0, stream=7)


def told(rows: list[LeafWork]) -> list[tuple[str, str | None, str | None, int]]:
    return [(row.name, row.owner, row.phase, row.duration // US) for row in rows]


FORWARD = [
    cpu("tt:layers.0", 0, 100),
    cpu("tt:layers.0.attn", 5, 60),
    cpu("aten::linear", 10, 30, 11, sequence=4),
    cpu("aten::addmm", 12, 28, 12, sequence=5),
    cpu("aten::sdpa", 35, 55, 13, sequence=6),
    cpu("aten::add", 70, 80, 14, sequence=7),
    cpu("aten::argmax", 110, 120, 15),
]


def test_on_a_cpu_the_outermost_ops_are_the_work() -> None:
    window = extract_leaf_work(FORWARD)
    assert told(window.rows) == [
        ("aten::linear", "layers.0.attn", None, 20), ("aten::sdpa", "layers.0.attn", None, 20),
        ("aten::add", "layers.0", None, 10), ("aten::argmax", None, None, 10),
    ]  # fmt: skip
    assert {row.lens for row in window.rows} == {"wall"} and window.problems == {}


def test_a_kernel_that_an_annotation_launched_itself_is_its_own() -> None:
    """A kernel of Triton has no op of torch around it: the annotation is the last that torch knows of."""
    events = [
        cpu("tt:L0.norm", 0, 20, 1),
        launch(50, 5, "cuLaunchKernelEx"),
        kernel("add_rmsnorm", 50, 1, 30, 40),
        cpu("tt:L0.attn", 20, 40, 2),
        cpu("tt:L0.attn.core", 21, 39, 3),
        launch(51, 25, "cuLaunchKernelEx"),
        kernel("decode_attention", 51, 3, 40, 60),
    ]
    window = extract_leaf_work(events)
    assert told(window.rows) == [
        ("add_rmsnorm", "L0.norm", None, 10),
        ("decode_attention", "L0.attn.core", None, 20),
    ]
    assert [row.op for row in window.rows] == ["L0.norm", "L0.attn.core"] and window.problems == {}


def test_the_order_of_the_events_does_not_matter() -> None:
    assert sorted(extract_leaf_work(FORWARD[::-1]).rows) == sorted(extract_leaf_work(FORWARD).rows)


def test_backward_work_belongs_to_whoever_did_the_forward_work() -> None:
    """Autograd runs on a thread of its own; only the sequence number ties it to the forward pass."""
    engine = "autograd::engine::evaluate_function: "
    backward = [
        cpu(f"{engine}AddBackward0", 200, 210, 20, thread=2, sequence=7),
        cpu(f"{engine}AddmmBackward0", 210, 260, 21, thread=2, sequence=5),
        cpu("AddmmBackward0", 211, 259, 22, thread=2, sequence=5),
        cpu("aten::mm", 215, 250, 23, thread=2),
        cpu(f"{engine}torch::autograd::AccumulateGrad", 260, 265, 24, thread=2),
        cpu("Optimizer.step#AdamW.step", 300, 400, 25),
        cpu("aten::_foreach_add_", 310, 330, 26),
    ]
    assert told(extract_leaf_work(FORWARD + backward).rows)[4:] == [
        ("AddBackward0", "layers.0", "backward", 10),
        ("AddmmBackward0", "layers.0.attn", "backward", 50),
        ("torch::autograd::AccumulateGrad", "gradients", "backward", 5),
        ("aten::_foreach_add_", "optimizer", "optimizer", 20),
    ]


def test_an_op_without_a_gradient_does_not_own_the_next_ones_backward_work() -> None:
    """Torch shows both under one number: the one that takes it begins last."""
    events = [
        cpu("tt:mask", 0, 10),
        cpu("aten::triu", 2, 8, 1, sequence=4),
        cpu("tt:scores", 10, 30),
        cpu("aten::linear", 11, 29, 2, sequence=4),
        cpu("aten::mm", 12, 28, 3, sequence=4),
        cpu("autograd::engine::evaluate_function: MmBackward0", 40, 60, 4, thread=2, sequence=4),
    ]
    for seen in (events, events[::-1]):
        (backward,) = [row for row in extract_leaf_work(seen).rows if row.phase == "backward"]
        assert backward.owner == "scores"


def test_kernels_belong_to_the_op_that_launched_them() -> None:
    on_gpu = [
        launch(101, 20), launch(102, 40), launch(103, 75), launch(104, 81, "cudaMemcpyAsync"),
        kernel("sm90_gemm", 101, 12, 50, 90), kernel("flash_fwd", 102, 13, 90, 150),
        kernel("vectorized_elementwise", 103, 14, 150, 152),
        kernel("Memcpy DtoH", 104, 15, 152, 153, "gpu_memcpy"),
    ]  # fmt: skip
    window = extract_leaf_work(FORWARD + on_gpu)
    assert told(window.rows) == [
        ("sm90_gemm", "layers.0.attn", None, 40), ("flash_fwd", "layers.0.attn", None, 60),
        ("vectorized_elementwise", "layers.0", None, 2), ("Memcpy DtoH", None, None, 1),
    ]  # fmt: skip
    assert {(row.lens, row.track) for row in window.rows} == {("gpu", "gpu 0 stream 7")}
    assert [row.op for row in window.rows] == ["aten::linear", "aten::sdpa", "aten::add", "aten::argmax"]
    assert window.problems == {}


def test_a_window_that_lost_kernels_says_so() -> None:
    on_gpu = [
        launch(101, 20), launch(102, 40), launch(103, 75),
        kernel("a", 101, 12, 10, 15),  # before its launch: another round's clock
        ProfilerEvent("b", 0, 0, 102, 13, "kernel"),  # a record without times
        kernel("c", 999, 998, 50, 60),  # launched by nobody that was seen
    ]  # fmt: skip
    window = extract_leaf_work(FORWARD + on_gpu)
    assert told(window.rows) == [("c", None, None, 10)]
    assert window.problems == {
        "kernels without a time": 1,
        "kernels that started before their launch": 1,
        "kernels without a known launch": 1,
        "launches without a kernel": 1,
    }


def test_an_empty_window_is_empty() -> None:
    assert extract_leaf_work([]).rows == []


def test_windows_keep_within_their_budget() -> None:
    duty, at, in_windows = WindowBudget(0.03, warm_up=1), 0, 0
    assert not duty.is_due(at), "the first step is a warm-up"
    for _ in range(20_000):
        if duty.is_due(at):
            at += 45_000_000
            duty.add_window(at, overhead=5_000_000, step=45_000_000)
            at += 5_000_000
            in_windows += 10_000_000  # 5 ms of handling, 5 ms by which the step was slower
        else:
            at += 40_000_000
            duty.add_plain_step(40_000_000)
    assert duty.windows > 100
    assert duty.spent_ns <= in_windows
    assert 0.02 < duty.spent_ns / at <= 0.0305


def test_continuous_and_off() -> None:
    always, never = WindowBudget(1.0, warm_up=0), WindowBudget(0.0, warm_up=0)
    for at in range(5):
        assert always.is_due(at) and not never.is_due(at)
        always.add_window(at, overhead=100, step=100)
