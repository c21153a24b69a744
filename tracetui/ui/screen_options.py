"""How a screen starts: what the command line, the config file and saved choices ask for."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from capture.device_roofs import Roof
from capture.model_work.model_config import SEARCHED_CONFIG, ConfigChoice
from capture.run import Run
from tracetui.compare.run_sides import Sides
from tracetui.look import Look
from tracetui.process import EngineProcess
from tracetui.ui.key_table import KEYS, KeyBinding


@dataclass(frozen=True)
class ScreenOptions:
    """How the screen starts; keys can change every field of the look later."""

    view: str = "summary"
    fallback_view: str | None = None  # the first view if the first run has no data for `view`
    run: str | None = None  # number from 1, or a part of the name
    look: Look = field(default_factory=Look)
    follow: bool = False
    engine: EngineProcess | None = None  # writes the followed file, if we started it
    baseline: str | None = None  # number or name of a run
    sides: Sides = field(default_factory=Sides)  # repeats and noise of the compared runs
    comparison_runs: tuple[Run, ...] = ()  # to compare a live run with; the first is the baseline
    tour: bool = False
    cast: Path | None = None  # file for an asciicast of the session
    theme: str | None = None  # one of THEMES
    keys: tuple[KeyBinding, ...] = KEYS
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # chosen, by view
    saves_choices: bool = False  # whether columns and remarks are saved
    ascii: bool = False
    colours: bool = field(default_factory=lambda: "NO_COLOR" not in os.environ)
    clipboard: bool = True
    cache: bool = True
    merge: bool = False  # merge runs of one rank each
    limits: bool = True  # bound how far files may unpack
    roof: Roof | None = None  # in place of the roofs of the files
    config: ConfigChoice = SEARCHED_CONFIG  # of the model
    client_logs: Sequence[str] = ()  # requests that were served meanwhile
    device: str | None = None  # keep the rows of this device only
    executor: str | None = None  # executor that asks many files; None: they are read here
    hosts: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # host and switch, by rank
    capture: str | None = None  # file with captured CUDA graphs; None: searched next to the trace
