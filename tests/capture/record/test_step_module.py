"""Which calls are steps, in programs of several models: played modules with a size and weights."""

from capture.record.step_module import MAX_OTHER_CALLS, StepModule


class Weights:
    def __init__(self, place: int) -> None:
        self.place = place

    def data_ptr(self) -> int:
        return self.place


class Module:
    """A module that is called from outside of any."""

    def __init__(self, size: int, place: int | None = None) -> None:
        self.size, self.place = size, place or id(self)

    def parameters(self) -> object:
        return iter([Weights(self.place)])


def steps(root: StepModule, *calls: Module) -> list[int]:
    """Return the sizes of the calls that were steps."""
    return [module.size for module in calls if root.is_step_call(module, module.size)]


def test_the_largest_is_the_root_once_it_is_called() -> None:
    draft, target = Module(10), Module(99)
    round_ = [draft] * 4 + [target]
    assert steps(StepModule(), *round_ * 3) == [10] * 4 + [99] * 3


def test_five_layers_of_one_size_are_one_step() -> None:
    layers = [Module(7) for _ in range(5)]
    assert len(steps(StepModule(), *layers * 20)) == 20


def test_a_wrapper_of_the_root_is_the_root() -> None:
    model = Module(50)
    assert len(steps(StepModule(), model, Module(50, model.place), Module(50, model.place))) == 3


def test_losses_without_weights_are_no_steps() -> None:
    model, loss = Module(50), Module(0)
    assert steps(StepModule(), *[model, *[loss] * 30] * 4) == [50] * 4


def test_a_smaller_model_that_goes_on_alone_becomes_the_root() -> None:
    """A text encoder runs once, then the model that draws the picture for many steps."""
    encoder, drawing = Module(90), Module(40)
    root = StepModule()
    assert steps(root, encoder, *[drawing] * 30) == [90] + [40] * (30 - MAX_OTHER_CALLS)
    assert steps(root, encoder, *[drawing] * 30) == [40] * 30, "the encoder does not take its place again"


def test_a_model_that_is_dropped_leaves_its_place() -> None:
    root, model = StepModule(), Module(90)
    assert steps(root, model) == [90]
    del model
    assert steps(root, Module(40)) == [40]
