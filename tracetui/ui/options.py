"""What the command line asks of the screen."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from capture.run import Run
from tracetui.look import Look
from tracetui.process import Engine
from tracetui.ui.keys import KEYS, Key


@dataclass(frozen=True)
class Options:
    """How the screen starts; every field of the look has a key that changes it later."""

    view: str = "summary"
    instead: str | None = None  # the view to begin with where the first run cannot feed that one
    run: str | None = None  # a number from 1, or a part of a run's name
    look: Look = field(default_factory=Look)
    follow: bool = False
    engine: Engine | None = None  # whose file is followed, where it is ours
    baseline: str | None = None  # as run: what others are measured against
    beside: tuple[Run, ...] = ()  # runs that a live one is held against; the first is its baseline
    tour: bool = False
    cast: Path | None = None  # where the session is written as an asciicast
    theme: str | None = None  # one of THEMES
    keys: tuple[Key, ...] = KEYS
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of a view, where a person chose
    keeps: bool = False  # what a person chooses and writes on the screen, for the next one
    ascii: bool = False
    colours: bool = field(default_factory=lambda: "NO_COLOR" not in os.environ)  # whether there are any
    clipboard: bool = True
    cache: bool = True
    merge: bool = False  # runs of one rank each become one run
    limits: bool = True  # on how far a file may unpack, and how long a stream may be
    device: str | None = None  # of several: whose rows are left
    on: str | None = None  # where many files are asked one question; None: they are read here
    hosts: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # of their ranks: host and switch
    capture: str | None = None  # of the graphs that a trace replays; None: looked for beside it
