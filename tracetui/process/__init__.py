"""Engines as processes: the explorer knows one as a command line that appends event lines to a file."""

from tracetui.process.account import Account as Account
from tracetui.process.attached import Attached as Attached
from tracetui.process.bundled import Bundled as Bundled
from tracetui.process.bundled import list_options as list_options
from tracetui.process.bundled import refusal_reason as refusal_reason
from tracetui.process.commands import recorded_environment as recorded_environment
from tracetui.process.commands import sampler_command as sampler_command
from tracetui.process.engine import Engine as Engine
from tracetui.process.foreign import Foreign as Foreign
from tracetui.process.program import Program as Program
from tracetui.process.target import Target as Target
from tracetui.process.target import why_not_attached as why_not_attached
from tracetui.process.watcher import Watcher as Watcher
