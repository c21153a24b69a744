"""Processes that tracetui starts or attaches to, and what is known of them.

- attach_check: check whether a running process can be attached to; each refusal says why and what helps
- attached_process: record a process that was already running, through a socket; it outlives us
- command_lines: command lines and environments of the processes we start
- debugger: make a running Python process execute a text, by gdb or `sys.remote_exec`
- engine_kinds: the bundled engine, a user's program and the process that watches a server, as engines
- engine_process: an engine process: commands to it, its output, its end and the reason of that
- foreground_program: run a program as a shell would: its terminal, its streams, its signals
- process_reports: what the processes of a recorded program reported, and which of them never did
"""

from tracetui.process.attach_check import AttachTarget as AttachTarget
from tracetui.process.attach_check import explain_attach_limits as explain_attach_limits
from tracetui.process.attached_process import AttachedProcess as AttachedProcess
from tracetui.process.command_lines import DETAIL_VARIABLE as DETAIL_VARIABLE
from tracetui.process.command_lines import build_recorded_environment as build_recorded_environment
from tracetui.process.command_lines import build_sampler_command as build_sampler_command
from tracetui.process.engine_kinds import BundledEngine as BundledEngine
from tracetui.process.engine_kinds import UserProgram as UserProgram
from tracetui.process.engine_kinds import WatchProcess as WatchProcess
from tracetui.process.engine_kinds import explain_refusal as explain_refusal
from tracetui.process.engine_kinds import list_options as list_options
from tracetui.process.engine_process import EngineProcess as EngineProcess
from tracetui.process.foreground_program import ForegroundProgram as ForegroundProgram
from tracetui.process.process_reports import ReportFolder as ReportFolder
