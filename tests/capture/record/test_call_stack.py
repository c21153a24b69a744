"""Calls that were only noted in the log become the rows that they are, which are counted by hand."""

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from capture.record.call_stack import CallStack
from capture.record.op_ids import ModuleNames, ModuleOps, OpIds


class Module:
    """Stands for a module of torch: only its name and its weak references are asked for."""


OUTER, MIDDLE, FIRST, SECOND = (
    type(name, (Module,), {})() for name in ("Outer", "Middle", "First", "Second")
)
# the outer call lasts from 10 to 100; the middle one within it from 20 to 60, and holds the first twice
WHOLE = [MIDDLE, 20, FIRST, 25, FIRST, -30, FIRST, 40, FIRST, -47, MIDDLE, -60, SECOND, 70, SECOND, -95]


@pytest.fixture
def stack() -> CallStack:
    stack = CallStack(None, ModuleOps(OpIds(), ModuleNames(), None))
    stack.push(OUTER, "", 10)
    return stack


def told(stack: CallStack, rows: list[int]) -> list[tuple[str, int, int]]:
    """Return the rows by the names of their ops."""
    names = {op["id"]: op["name"] for op in stack._ops._op_ids.pop_new()}
    return [
        (names[op], start, took) for op, start, took in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
    ]


def test_calls_in_the_log_are_rows_of_their_own_time(stack: CallStack) -> None:
    stack.log += WHOLE
    assert told(stack, stack.read_log(None)) == [
        ("First", 25, 5),
        ("First", 40, 7),
        ("Middle (own work)", 20, 40 - 5 - 7),
        ("Second", 70, 25),
    ]
    (outer,) = stack.calls
    assert outer.inner_ns == 40 + 25 and stack.log == [] and stack.module_count == 1


def test_logs_with_the_same_calls_have_the_times_of_each(stack: CallStack) -> None:
    """The same calls at other times, then others; calls within each other are not those beside each other."""
    later = [part + 7 * place * (part > 0) - 7 * place * (part < 0) if isinstance(part, int) else part
             for place, part in enumerate(WHOLE)]  # fmt: skip
    short, nested = WHOLE[:-4], [FIRST, 1, FIRST, 2, FIRST, -3, FIRST, -4]
    beside = [FIRST, 1, FIRST, -2, FIRST, 3, FIRST, -4]
    has_shape = []
    for log in (WHOLE, later, WHOLE, short, short, nested, beside, [FIRST, 1, FIRST, -2], nested):
        stack.log += log
        complete = stack.pop_complete_log()
        assert complete is not None and stack.log == []
        rows, inner_ns = complete.build_rows()
        assert (list(rows), inner_ns) == stack.read_complete_log(log, None)
        assert complete.row_count == len(log) // 4
        has_shape.append(complete.shape is not None)
    assert has_shape == [False, True, True, False, True, False, False, False, False]
    stack.log += WHOLE[:-2]
    assert stack.pop_complete_log() is None and stack.log == WHOLE[:-2]


@pytest.mark.parametrize("cut", range(0, len(WHOLE) + 2, 2))
def test_a_log_that_is_read_in_two_pieces_says_the_same(stack: CallStack, cut: int) -> None:
    """The program may go backward, or capture a graph, within a call that stands in the log."""
    stack.log += WHOLE[:cut]
    rows = stack.read_log(None)
    stack.log += WHOLE[cut:]
    rows += stack.read_log(None)
    assert told(stack, rows) == [
        ("First", 25, 5),
        ("First", 40, 7),
        ("Middle (own work)", 20, 28),
        ("Second", 70, 25),
    ]
    assert [call.module for call in stack.calls] == [OUTER] and stack.calls[0].inner_ns == 65


def test_calls_that_are_never_left_are_forgotten_with_the_one_around_them(stack: CallStack) -> None:
    stack.log += [MIDDLE, 20, FIRST, 25, MIDDLE, -60, FIRST, -70]
    assert told(stack, stack.read_log(None)) == [("Middle", 20, 40)]
    assert [call.module for call in stack.calls] == [OUTER]


def test_a_log_holds_no_module_once_it_was_read(stack: CallStack) -> None:
    module: Any = type("Dropped", (Module,), {})()
    gone = weakref.ref(module)
    stack.log += [module, 20, module, -30]
    stack.read_log(None)
    stack.log += [module, 40]
    stack.read_log(None)
    stack.log += [module, -50]
    stack.read_log(None)
    del module
    assert gone() is None


def test_a_call_that_is_used_again_begins_anew(stack: CallStack) -> None:
    first = stack.push(MIDDLE, "", 20)
    first.inner_ns = 5
    assert stack.pop(first, 30)
    stack.release(first)
    again = stack.push(None, "backward", 40)
    assert again is first and (again.module, again.part, again.start, again.inner_ns) == (
        None,
        "backward",
        40,
        0,
    )
    assert not stack.pop(CallStack(None, stack._ops).push(MIDDLE, "", 0), 50)


class Named:
    """A module by itself, with one parameter of four values."""

    def named_modules(self) -> list[tuple[str, Any]]:
        return [("", self)]

    def parameters(self) -> list[Any]:
        return [SimpleNamespace(numel=lambda: 4)]

    def buffers(self) -> list[Any]:
        return []


def test_modules_of_one_type_that_are_called_by_themselves_have_names_of_their_own() -> None:
    names, modules = ModuleNames(), [Named(), Named(), Named()]
    assert [names.measure_size(module) for module in (*modules, modules[0])] == [4, 4, 4, 4]
    assert [names.find_name(module) for module in modules] == ["Named", "Named 2", "Named 3"]


def test_a_module_that_all_layers_share_belongs_to_none() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Module()
    rotary = torch.nn.ModuleDict({"tables": torch.nn.Linear(2, 2)})
    model.layers = torch.nn.ModuleList(torch.nn.ModuleDict({"rotary": rotary}) for _ in range(3))
    names, ops = ModuleNames(), OpIds()
    names.measure_size(model)
    assert [names.find_name(part) for part in (model.layers[1], rotary, rotary["tables"])] == [
        "layers.1", "layers.*.rotary", "layers.*.rotary.tables",
    ]  # fmt: skip
    ModuleOps(ops, names, None).find_id(rotary["tables"], has_inner=False, phase=None)
    (op,) = ops.pop_new()
    assert (op["name"], op.get("layer"), op["path"]) == (
        "rotary.tables",
        None,
        "layers / * / rotary / tables",
    )


@pytest.mark.parametrize("is_written", [False, True])
def test_an_encoder_called_before_its_model_has_its_path_there_unless_it_is_written(is_written: bool) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.ModuleDict({
        stack: torch.nn.ModuleDict({"block": torch.nn.ModuleList([torch.nn.Linear(2, 2)])})
        for stack in ("encoder", "decoder")
    })  # fmt: skip
    names, op_ids = ModuleNames(), OpIds()
    ops = ModuleOps(op_ids, names, None)
    encoder, layer = model["encoder"], model["encoder"]["block"][0]
    names.measure_size(encoder)
    ids = [ops.find_id(each, has_inner=each is encoder, phase=None) for each in (encoder, layer)]
    written = op_ids.pop_new() if is_written else []
    names.measure_size(model)
    ops.rename_inner(model)
    assert [op["path"] for op in written or op_ids.pop_new()] == (
        ["ModuleDict", "block / 0"] if is_written else ["encoder", "encoder / block / 0"]
    )
    assert [ops.find_id(each, has_inner=each is encoder, phase=None) for each in (encoder, layer)] == ids
    assert names.find_name(layer) == ("block.0" if is_written else "encoder.block.0")
    assert names.find_name(model["decoder"]["block"][0]) == "decoder.block.0"
    assert not op_ids.pop_new()
