"""Wait for the program's own import of torch or llama_cpp, then start recording. Standard library only."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import atexit
import copy
import importlib
import importlib.abc
import platform
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import process_notes
from .fault_guard import hide_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


_at_exit: list[Callable[[], object]] = []  # what is done after the program's own handlers of its end
# imported module → our module that records it
_INSTALLERS = {"torch": ".patch_torch", "llama_cpp.llama_cpp": ".llama_cpp"}


def start() -> None:
    """Note that this process can be recorded, and watch its imports."""
    process_notes.remember_environment()
    process_notes.append_note("python " + platform.python_version())
    atexit.register(_end)  # the first to be registered is the last to run: the program's may call its model
    for name in _INSTALLERS:
        if name in sys.modules:  # imported before us, by a .pth file
            _install(sys.modules[name])
        else:
            hook = _ImportHook(name)
            sys.meta_path.insert(0, hook)
            _at_exit.append(hook.note_miss)


def run_at_exit(action: Callable[[], object]) -> Callable[[], object]:
    """Run an action when the process ends, after what the program does then; return what takes it back."""
    if not _at_exit:  # nobody started this: the process was attached to
        atexit.register(action)
        return lambda: atexit.unregister(action)
    _at_exit.append(action)
    return lambda: _at_exit.remove(action)


def _end() -> None:
    for action in _at_exit[::-1]:
        action()


class _ImportHook(importlib.abc.MetaPathFinder):
    """Answers what the other finders answer, with a loader that installs the recorder after the import.

    A program may ask for a spec as often as it likes before it imports (transformers and vLLM do): only an
    import that succeeded removes the hook.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_installed = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ():
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                spec.loader = _wrap_loader(spec.loader, self._end)
                return spec
        return None

    def _end(self, module: ModuleType) -> None:
        """Record a module that has been imported; the first time only."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if not self._is_installed:
            self._is_installed = True
            _install(module)

    def note_miss(self) -> None:
        """Note at the end that the module was imported without us: the program took this hook out."""
        if not self._is_installed and self not in sys.meta_path and self._name in sys.modules:
            process_notes.append_note("missed " + self._name.partition(".")[0])


def _wrap_loader(loader: Any, end: Callable[[ModuleType], None]) -> Any:
    """Return a copy of a loader that calls `end` with the module it has loaded.

    A copy, because a loader of a zip file serves many modules; without `exec_module` it is an older one.
    """
    if loader is None or isinstance(loader, type):
        return loader
    method = "exec_module" if hasattr(loader, "exec_module") else "load_module"
    with suppress(Exception):  # a loader that cannot be copied stays as it is
        wrapped = copy.copy(loader)
        setattr(wrapped, method, _LoadCall(getattr(loader, method), wrapped, method, end))
        return wrapped
    return loader


class _LoadCall:
    """The method of a loader that loads a module; equal to another, as loaders of one file are equal."""

    def __init__(
        self, load: Callable[..., Any], loader: Any, method: str, end: Callable[[ModuleType], None]
    ) -> None:
        self._load, self._loader, self._method, self._end = load, loader, method, end

    def __call__(self, module: Any) -> Any:
        vars(self._loader).pop(self._method, None)
        try:
            result = self._load(module)
        except BaseException as error:
            hide_frame(error)
            raise
        self._end(module if result is None else result)
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _LoadCall)

    __hash__ = None  # type: ignore[assignment]


def _install(module: ModuleType) -> None:
    """Record a module; if that fails, the program continues and one line says so."""
    if module.__name__ == "torch" and not hasattr(getattr(module, "nn", None), "Module"):
        return  # a module of the program that has the name
    package = module.__name__.partition(".")[0]
    version = getattr(sys.modules.get(package), "__version__", "") or getattr(module, "__version__", "")
    process_notes.append_note(f"{package} {version}".rstrip())
    try:
        importlib.import_module(_INSTALLERS[module.__name__], __package__).install(module)
    except Exception as e:
        why = " ".join(f"{type(e).__name__}: {e}".split())
        process_notes.append_note("fault " + why)
        sys.stderr.write(f"tracetui: this program is not recorded: {why}\n")
