"""Find the step module of a thread, whose calls are its steps: the largest module called at top level."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .call_phases import find_length
from .op_ids import list_frozen_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .call_stack import RecordedStep

MAX_OTHER_CALLS: Final = 8  # calls of another module in a row after which that one becomes the step module
MIN_TEXT: Final = 3  # tokens: a draft model may get two that its larger model accepted


class StepModule:
    """The step module of one thread; the program may drop it, wrap it, or switch to another model."""

    def __init__(self) -> None:
        self._module: Callable[[], Any] = _dead_ref  # weak reference: the program may drop it
        self._size, self._is_frozen = -1, False
        self._weights_address = 0
        self._other_calls: dict[int, int] = {}  # calls of other modules since the last step call
        self._max_other_calls = 0  # most such calls of one module so far
        self._replaced_modules: set[int] = set()
        self.outgrown_count = 0  # how often a larger module has replaced it
        self._author: Callable[[], Any] = _dead_ref  # of the text in whose decoding another module was called
        self._author_step: RecordedStep | None = None  # its last one
        self._writers: set[int] = set()  # ids of modules that were found to write texts in turn
        self._text_reader = 0  # id of the first module called since the last step, if it read a text

    def is_step_call(self, module: Any, size: int, *, learns: bool = False) -> bool:
        """Return whether a top-level call of a module starts a step, and update the step module.

        `learns` if the call is for gradients, in a program that trains.
        """
        step_module = self._module()
        if step_module is None or module is step_module or self._has_same_weights(module, size):
            if step_module is None:
                self.replace(module, size)
            if self._other_calls:
                self._max_other_calls = max(self._max_other_calls, *self._other_calls.values())
                self._other_calls.clear()
            return True
        count = self._other_calls[id(module)] = self._other_calls.get(id(module), 0) + 1
        is_learner = learns and self._is_frozen_copy_of(module, size)
        has_many_calls = size > 0 and count > MAX_OTHER_CALLS + 2 * self._max_other_calls
        if self._outgrows(module, size, is_learner=is_learner) or is_learner or has_many_calls:
            self._replaced_modules.add(id(step_module))
            self.replace(module, size)
            return True
        return False

    def _is_frozen_copy_of(self, module: Any, size: int) -> bool:
        """Return whether the step module has no weight that learns, unlike a module of its size.

        One of another size may be a head behind a frozen model.
        """
        return size == self._size and self._is_frozen and not _is_frozen(module)

    def _outgrows(self, module: Any, size: int, *, is_learner: bool) -> bool:
        """Return whether steps so far were none, as a module is larger, or learns for the first time."""
        outgrows = (is_learner or size > self._size) and id(module) not in self._replaced_modules
        self.outgrown_count += outgrows
        return outgrows

    def resume_text(
        self, module: Any, size: int, step: RecordedStep, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """Make a twin of the step module, the author of the last text, or another writer that one.

        Return whether the step in progress is none: its model only judged the text. One that learns from the
        text makes steps. A draft model goes on with its text when its larger model was called.
        """
        step_module, author = self._module(), self._author()
        if module is step_module:
            return False
        if module is author and self._author_step is not None:
            self._author = _dead_ref  # its first call tells
            if not step.is_single and self._author_step.is_followed_by_text(args, kwargs, MIN_TEXT):
                self.replace(module, size)
                if not step.is_training:
                    self._replaced_modules.add(id(step_module))
                return not step.is_training
        if step.is_single:
            self._author, self._author_step = self._module, step
        is_twin = size == self._size and type(module) is type(step_module)
        if is_twin and step.is_followed_by_text(args, kwargs):
            self.replace(module, size)
        elif size:
            self._follow_writer(module, size, step, args, kwargs)
        return False

    def _follow_writer(
        self, module: Any, size: int, step: RecordedStep, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Make a module that writes texts in turn with the step module that one."""
        step_module = self._module()
        if self._is_writer(module, step, args, kwargs):
            self._writers |= {id(step_module), id(module)}
            self._replaced_modules.add(id(step_module))
            self.replace(module, size)

    def _is_writer(
        self, module: Any, step: RecordedStep, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """Return whether a module writes texts in turn with the step module, which has ended one.

        It is known by its first token after a text that it read. A draft is not read after a single token.
        """
        if not self._other_calls:
            is_text = step.is_followed_by_text(args, kwargs, MIN_TEXT)
            self._text_reader = id(module) if is_text else 0
            return is_text and id(module) in self._writers
        if self._text_reader != id(module):
            return False
        self._text_reader = 0
        length = find_length(args, kwargs)
        return step.is_single and length is not None and length.tokens == 1

    def replace(self, module: Any, size: int) -> None:
        """Make another module the step module."""
        self._module, self._size, self._is_frozen = weakref.ref(module), size, _is_frozen(module)
        self._weights_address = _find_weights_address(module)
        self._replaced_modules.discard(id(module))
        self._other_calls.clear()
        self._max_other_calls = 0

    def has_encoder(self, module: Any) -> bool:
        """Return whether a module is the encoder that `generate` of transformers calls before the model."""
        step_module = self._module()
        if module is None or module is step_module or not hasattr(step_module, "get_encoder"):
            return False
        with suppress(Exception):  # a model's own lookup
            return bool(step_module.get_encoder() is module)
        return False

    @property
    def module(self) -> Any:
        """The step module, or None before the first call, or if the program dropped it."""
        return self._module()

    def _has_same_weights(self, module: Any, size: int) -> bool:
        return size == self._size and _find_weights_address(module) == self._weights_address


class DeviceLookup:
    """Finds the device of the step module's weights, remembering which parameter to check."""

    def __init__(self) -> None:
        self._module: Callable[[], Any] = _dead_ref
        self._owner: Callable[[], Any] = _dead_ref  # the inner module that has the parameter
        self._name = ""

    def find_lens(self, module: Any) -> str:
        """Return the lens of the calls of a module: on other devices they are only begun."""
        return "wall" if self.find_type(module) == "cpu" else "host"

    def find_type(self, module: Any) -> str:
        """Return the device type of a module's first parameter; cpu if it has none."""
        owner = self._owner() if self._module() is module else None
        first = None if owner is None else owner._parameters.get(self._name)
        if first is None:
            self._find_parameter(module)
            return find_device_type(module)
        return str(first.device.type)

    def _find_parameter(self, module: Any) -> None:
        """Remember where the first parameter is; nothing for modules with their own storage."""
        first = next(module.parameters(), None)
        self._module = _dead_ref
        if first is None:
            return
        with suppress(AttributeError, TypeError):
            for owner in module.modules():
                name = next((name for name, each in owner._parameters.items() if each is first), None)
                if name is not None and hasattr(owner._parameters, "get"):
                    self._module, self._owner, self._name = weakref.ref(module), weakref.ref(owner), name
                    return


def find_called_module(fn: Any, args: Any, kwargs: Any, measure: Callable[[Any], int]) -> Any:
    """Return the largest module that a function can call, an argument or a name of its; None without one."""
    fn = getattr(fn, "__wrapped__", fn)
    owner, code = getattr(fn, "__self__", None), getattr(fn, "__code__", None)
    values = [*args, *kwargs.values(), owner, *getattr(owner, "__dict__", {}).values()]
    for cell in getattr(fn, "__closure__", None) or ():
        with suppress(ValueError):  # one that is still empty
            values.append(cell.cell_contents)
    names = getattr(fn, "__globals__", {})
    values += [names[name] for name in getattr(code, "co_names", ()) if name in names]
    modules = [value for value in values if hasattr(type(value), "_call_impl")]
    largest = max(modules, key=measure, default=None)
    return largest if largest is not None and measure(largest) else None


def find_device_type(module: Any) -> str:
    """Return the device type of a module's first parameter; cpu if it has none."""
    first = next(module.parameters(), None)
    if first is None:
        first = next(iter(list_frozen_weights(module)), None)
    return "cpu" if first is None else str(first.device.type)


def _find_weights_address(module: Any) -> int:
    """Return the address of a module's first weights, which wrappers share, else the id of the module."""
    with suppress(Exception):  # weights may be fake, offloaded or not created yet
        return int(next(module.parameters()).data_ptr())
    return id(module)


def _is_frozen(module: Any) -> bool:
    """Return whether no weight of a module learns."""
    with suppress(Exception):  # weights may be of any kind
        return not any(weight.requires_grad for weight in module.parameters())
    return False


def _dead_ref() -> None:
    """Act as a weak reference whose object is gone."""
