"""Engines as processes: the explorer knows one as a command line that appends event lines to a file."""

from tracetui.process.bundled import Bundled as Bundled
from tracetui.process.bundled import offered as offered
from tracetui.process.bundled import refusal as refusal
from tracetui.process.commands import recorded_environment as recorded_environment
from tracetui.process.engine import Engine as Engine
