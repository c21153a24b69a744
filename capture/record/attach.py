"""Attaches to a plain PyTorch program without an edit of it: hooks on all modules, and the recording's start.

`site/sitecustomize.py` calls `install` when TRACETUI_OUT is set and torch has been imported.
"""

import atexit
import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ..native.emit import Emitter, emitting
from . import torchrun
from .spans import OUT
from .watcher import Watcher, device_of

RUN: Final = "TRACETUI_RUN"  # names to child processes the run that they are part of


def install() -> None:
    """Hook into every module of the process. A fault in here ends the watching, never the program."""
    import torch
    from torch.nn.modules import module as modules

    watcher = Watcher(torch, open_recording)

    def guarded(hook: Callable[..., None]) -> Callable[..., None]:
        def safe(*args: Any) -> None:
            try:
                hook(*args)
            except Exception as e:
                watcher.off = True
                sys.stderr.write(f"tracetui: the program is watched no more: {type(e).__name__}: {e}\n")

        return safe

    modules.register_module_forward_pre_hook(guarded(watcher.before))
    modules.register_module_forward_hook(guarded(watcher.after), always_call=True)

    @atexit.register
    def finish() -> None:
        with suppress(Exception):
            watcher.close()


def open_recording(module: Any) -> Emitter | None:
    """Begin the run of a program whose first module this is; None where the program writes one by itself."""
    if emitting():
        return None
    import torch

    run_id, torchrun_rank = os.environ.get(RUN), torchrun.of_environment(os.environ)
    rank = os.environ.get("RANK") or (str(os.getpid()) if run_id else None)
    emitter = Emitter(os.environ[OUT], rank=int(rank) if rank and rank.isdecimal() else None)
    if not run_id:
        run_id = torchrun.run_id(os.environ, torchrun_rank) if torchrun_rank else secrets.token_hex(8)
        os.environ[RUN] = run_id
    meta = {
        "model": type(module).__name__,
        "driver": "PyTorch, attached",
        "torch": torch.__version__,
        "device": device_of(module),
        "argv": sys.argv,
        "pid": os.getpid(),
    }
    emitter.run(type(module).__name__, meta, id=run_id)
    return emitter
