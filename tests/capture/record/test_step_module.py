"""Which calls are steps, in programs of several models: played modules with a size and weights."""

from capture.record.call_phases import find_length
from capture.record.call_stack import RecordedStep
from capture.record.step_module import MAX_OTHER_CALLS, StepModule


class Weights:
    def __init__(self, place: int, *, requires_grad: bool) -> None:
        self.place, self.requires_grad = place, requires_grad

    def data_ptr(self) -> int:
        return self.place


class Module:
    """A module that is called from outside of any."""

    def __init__(self, size: int, place: int | None = None, *, learns: bool = True) -> None:
        self.size, self.place, self.learns = size, place or id(self), learns

    def parameters(self) -> object:
        return iter([Weights(self.place, requires_grad=self.learns)])


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


def test_a_frozen_model_makes_no_step_once_another_learns() -> None:
    frozen, learner, root = Module(50, learns=False), Module(50), StepModule()
    calls = [(frozen, False), (frozen, False), (learner, True), (learner, True)] * 4
    made = [each is learner for each, learns in calls if root.is_step_call(each, each.size, learns=learns)]
    assert made == [False, False] + [True] * 8 and root.outgrown_count == 1
    assert steps(StepModule(), *[frozen, learner] * 4) == [50] * 4, "nothing learns"
    root, head = StepModule(), Module(5)
    calls = [(frozen, False), (head, True)] * 4
    made = [each.size for each, learns in calls if root.is_step_call(each, each.size, learns=learns)]
    assert made == [50] * 4, "a head that learns behind a frozen model makes none"


class Ids:
    """Token numbers of one sequence."""

    dtype = "torch.int64"

    def __init__(self, tokens: int) -> None:
        self.shape = 1, tokens

    def dim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return False


def steps_of_texts(*calls: tuple[Module, int], learner: Module | None = None) -> list[int]:
    """Return the sizes of the calls that were steps, of models with so many tokens each; one may learn."""
    root, step, sizes = StepModule(), None, []
    for module, tokens in calls:
        args = [Ids(tokens)]
        if step is not None and root.resume_text(module, module.size, step, args, {}):
            sizes.pop()
        if root.is_step_call(module, module.size):
            step = RecordedStep(0, is_training=module is learner)
            step.length = find_length(args, {})
            sizes.append(module.size)
    return sizes


def test_a_larger_model_that_reads_each_text_makes_no_step() -> None:
    author, judge, second = Module(10), Module(99), Module(120)
    text = (author, 5), *[(author, 1)] * 20
    assert steps_of_texts(*[*text, (judge, 25)] * 3) == [10] * 63
    assert steps_of_texts(*[*text, *[(judge, 25)] * 2, (second, 25)] * 3) == [10] * 21 + [99] * 2 + [10] * 42


def test_a_larger_model_that_learns_from_each_text_makes_steps() -> None:
    author, learner = Module(10), Module(11)
    text = [(author, 5), *[(author, 1)] * 20, *[(learner, 25)] * 4]
    assert steps_of_texts(*text * 3, learner=learner) == ([10] * 21 + [11] * 4) * 3


def test_a_copy_that_reads_each_text_makes_no_step_but_the_last() -> None:
    author, copy, judge = Module(10), Module(10), Module(99)
    text = (author, 5), *[(author, 1)] * 20
    assert steps_of_texts(*[*text, (copy, 25), (author, 25)] * 3) == [10] * 22 * 3
    assert steps_of_texts(*[*text, (copy, 25)] * 3, *text) == [10] * 21 * 4
    assert steps_of_texts(*[*text, (copy, 25), (judge, 25)] * 3, *text) == [10] * 22 + [10] * 21 * 3


def test_two_models_of_a_kind_that_write_in_turn_both_make_steps() -> None:
    models = Module(10), Module(10)
    texts = [call for model in models for call in [(model, 5), *[(model, 1)] * 20]]
    assert steps_of_texts(*texts * 3) == [10] * 21 * 6


def test_models_of_two_sizes_that_write_in_turn_both_make_steps() -> None:
    small, large = Module(10), Module(99)
    texts = [[(model, 5), *[(model, 1)] * 20] for model in (small, large)]
    assert (
        steps_of_texts(*[*texts[0], *texts[1]] * 3)
        == [10] * 21 + [99] * 21 + [10] * 20 + ([99] * 21 + [10] * 21) + [99] * 21
    )
    assert steps_of_texts(*[*texts[1], *texts[0]] * 3) == [99] * 21 + [10] * 20 + ([99] * 21 + [10] * 21) * 2


def test_a_model_that_reads_texts_or_tokens_of_another_writes_none() -> None:
    writer, critic = Module(99), Module(10)
    text = (writer, 5), *[(writer, 1)] * 20
    assert steps_of_texts(*[*text, *[(critic, 26)] * 3] * 3) == [99] * 63
    in_step = [(writer, 5), (critic, 5), *[(writer, 1), (critic, 1)] * 20]
    assert steps_of_texts(*in_step * 3) == [99] * 63
    ahead = [(critic, 5), (writer, 5), *[(critic, 1), (writer, 1)] * 20]
    assert steps_of_texts(*text, *ahead * 3) == [99] * 84


def test_a_draft_model_makes_no_step_once_its_larger_model_is_called() -> None:
    draft, target = Module(10), Module(99)
    first, then = [(draft, 5), *[(draft, 1)] * 6, (target, 11)], [*[(draft, 1)] * 6, (target, 7)]
    accepted = [(draft, 2), *[(draft, 1)] * 5, (target, 7)]
    for round_ in (then, accepted):
        request = [*first, *round_ * 3]
        assert steps_of_texts(*request * 2) == [10] * 7 + [99] * 8
