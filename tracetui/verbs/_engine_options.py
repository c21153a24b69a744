"""Options of the bundled engine, of servers, folders and processes to watch; and how each is started.

Used by live and record. Neither polars nor views are imported here, so that an engine starts at once.
"""

import math
import os
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from capture.errors import CaptureError, UsageError
from capture.native.parts import SIZE_VARIABLE
from tracetui.process import DETAIL_VARIABLE, BundledEngine, EngineProcess, UserProgram, WatchProcess
from tracetui.verbs import _options, _recording

MODELS = {"decode": "gemma-3-1b", "prefill": "gemma-3-1b", "train": "cs336-small"}
QUANTS = ("auto", "q0f16", "q4f16_1", "q4f32_1", "q8_0")
DEFAULT_WINDOW_STEPS: Final = 5
DEFAULT_WINDOW_S: Final = 0.5
DEFAULT_INTERVAL_S: Final = 30.0
DEFAULT_SILENCE: Final = "1%"
_COUNTER_LINE: Final = b'{"kind":"counter"'
_SECONDS_PER_UNIT: Final = {"s": 1, "m": 60, "h": 3600}
_URL_SCHEMES: Final = ("http://", "https://")


def add_engine_options(parser: ArgumentParser) -> None:
    """Add the options of the engine; a command after -- replaces it."""
    add = _options.find_group(parser, "engine").add_argument
    add("--mode", default="decode", choices=tuple(MODELS), help="mode of the engine")
    _add_model_options(parser)
    add("--prompt", metavar="TEXT", help="prompt for the model")
    add("--steps", type=int, metavar="N", help="number of steps (default without a screen: a few)")
    about = "context length to start at; in other modes: sequence length"
    add("--context", type=int, metavar="N", help=about)
    add("--batch", type=int, metavar="N", help="number of concurrent sequences")
    add("--tokens-per-report", type=int, metavar="N", help="tokens per recorded step")
    add("--threads", type=int, metavar="N", help="CPU threads (default: one per core)")
    add("--ranks", type=int, metavar="N", help="processes that share the model, started as torchrun does")
    add("--path", choices=("granular", "fused"), help="granular or fused kernels")
    add("--graph", action=BooleanOptionalAction, help="replay fused kernels as a graph")
    add("--slow", metavar="OP:FACTOR", help="slow one op down, to try the diff")
    _add_sampling_options(parser)
    _add_training_options(parser)
    _add_recording_options(parser)
    _add_watch_options(parser)


def _add_recording_options(parser: ArgumentParser) -> None:
    add = _options.find_group(parser, "recording").add_argument
    add("--capture", choices=("off", "spans", "windows", "continuous"), help="how much is recorded")
    about = "what of a PyTorch program is timed: every module, whole layers, or steps only (full)"
    add("--detail", choices=("full", "layers", "steps"), help=about)
    add("--pid", type=int, metavar="N", help="running PyTorch process to attach to")
    add("-o", "--output", metavar="FILE", help="file for the recording")
    about = "add the run to a log of runs, by default your own (tracetui log lists it)"
    add("--to-log", nargs="?", const="", metavar="DIR", help=about)
    about = "start a new file at this size, as in 1GB; all parts open as one"
    add("--part-size", type=_options.parse_size, metavar="SIZE", help=about)
    about = "any program instead of the bundled engine, or the address of a server: http://HOST:PORT"
    parser.add_argument("command", nargs="*", metavar="-- CMD", help=about)


def _add_model_options(parser: ArgumentParser) -> None:
    add = _options.find_group(parser, "engine").add_argument
    models = " or ".join(dict.fromkeys(MODELS.values()))
    about = f"{models}, a folder, a .gguf file, or the Hugging Face or Ollama name of a local model"
    add("--model", help=about)
    add("--download", action="store_true", help="download missing weights from huggingface.co")
    add("--weights", default="auto", help="auto, random, a folder or a .gguf file")
    about = "device to run on; auto takes the best available"
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps", "xpu"), help=about)
    add("--dtype", default="auto", help="auto, fp32, fp16 or bf16")
    about = "format of the weights: 16 bits, or packed into 4 or 8 (auto: as in the .gguf file)"
    add("--quant", choices=QUANTS, help=about)


def _add_sampling_options(parser: ArgumentParser) -> None:
    add = _options.find_group(parser, "sampling of tokens").add_argument
    add("--temperature", type=float, metavar="T", help="sampling temperature; 0 takes the likeliest token")
    add("--top-k", type=int, metavar="N", help="sample from the N likeliest tokens")
    add("--top-p", type=float, metavar="P", help="sample from the likeliest tokens with total probability P")
    add("--seed", type=int, metavar="N", help="seed of sampling and of random weights")


def _add_training_options(parser: ArgumentParser) -> None:
    add = _options.find_group(parser, "with --mode train").add_argument
    add("--layers", type=int, metavar="N", help="number of the model's layers to use")
    add("--attention", choices=("explicit", "sdpa"), help="explicit matrix products, or torch's fused kernel")
    about = "AdamW tensor by tensor, or by torch (foreach, fused)"
    add("--optimizer", choices=("cs336", "foreach", "fused"), help=about)
    add("--warm-up", type=int, metavar="N", help="number of steps before the recording")


def start_engine(
    args: Namespace, out: Path, *, interactive: bool = False, log: Path | None = None
) -> EngineProcess:
    """Start the requested engine, program or watcher; it writes lines to `out` and its text to `log`."""
    if name_watch_target(args):
        return start_watcher(args, out)
    if args.pid is not None:
        return _recording.attach_to_process(args, out)
    if args.command:
        return UserProgram(args.command, out, log)
    return BundledEngine(build_engine_arguments(args), out, interactive=interactive)


def set_recorder_options(args: Namespace) -> None:
    """Make every recorder started from now on begin a new file at the requested size, and time so much."""
    if args.part_size is not None:
        os.environ[SIZE_VARIABLE] = str(args.part_size)
    if args.detail is not None:
        if name_watch_target(args) or not (args.command or args.pid):
            raise UsageError("--detail is for a program after --, or --pid", todo="leave it out")
        os.environ[DETAIL_VARIABLE] = args.detail


def build_engine_arguments(args: Namespace) -> list[str]:
    """Return the options of the engine that were given on the command line."""
    names = (
        "mode", "model", "weights", "device", "dtype", "quant", "prompt", "steps", "context", "batch",
        "tokens_per_report", "temperature", "top_k", "top_p", "seed", "threads", "ranks", "path", "capture",
        "slow", "layers", "attention", "optimizer", "warm_up",
    )  # fmt: skip
    values = ((f"--{name.replace('_', '-')}", getattr(args, name)) for name in names)
    valued = [part for name, value in values if value is not None for part in (name, str(value))]
    flags = ["--download"] if args.download else []
    if args.graph is not None:
        flags.append("--graph" if args.graph else "--no-graph")
    return valued + flags


def _build_recording_name(args: Namespace) -> str:
    if args.pid is not None:
        return f"pid-{args.pid}"
    return Path(args.command[0]).name if args.command else args.model or MODELS[args.mode]


def create_output_file(args: Namespace, end: str = "") -> Path:
    """Create the empty file for the recording, as requested or a new one among the recordings.

    `end` is appended to its name. Raise UsageError if it exists or cannot be created.
    """
    from capture.files.user_dirs import create_private_file, create_recording, format_recordings_warning

    _check_watch_options(args)
    _recording.check_process(args)
    if args.output is None:
        if warning := format_recordings_warning():
            _options.print_status(warning)
        return create_recording((name_watch_target(args) or _build_recording_name(args)) + end)
    out = Path(args.output)
    out = out.with_stem(out.stem + end) if end else out
    if not create_private_file(out):
        raise UsageError(f"{out} already exists", todo="choose another file with -o, or remove it")
    return out


def create_output_files(args: Namespace, count: int) -> list[Path]:
    """Create numbered empty files as `create_output_file` does; leave none behind if one fails."""
    made: list[Path] = []
    try:
        for number in range(1, count + 1):
            made.append(create_output_file(args, f"-{number:0{len(str(count))}}"))
    except CaptureError:
        for out in made:
            out.unlink()
        raise
    return made


def _add_watch_options(parser: ArgumentParser) -> None:
    about = "instead of an engine: --watch DIR, or the address of a server"
    add = _options.find_group(parser, about).add_argument
    add("--watch", metavar="DIR", help="follow a folder into which a profiler writes traces of any format")
    add("--traces", metavar="DIR", help="folder that the server's profiler writes to")
    about = f"a window of a server is --steps of it (default: {DEFAULT_WINDOW_STEPS}), or lasts this time"
    about += f" where it does not count its steps (default: {DEFAULT_WINDOW_S:g}s; 0: metrics only)"
    add("--windows", type=parse_window, metavar="TIME", help=about)
    add("--client-log", **_options.CLIENT_LOG)
    about = f"time between the starts of two windows (default: {DEFAULT_INTERVAL_S:g}s)"
    add("--every", type=parse_duration, metavar="TIME", help=about)
    about = f"share of the time that windows may keep the server silent (default: {DEFAULT_SILENCE}%)"
    add("--silence", metavar="SHARE", help=about)


def name_watch_target(args: Namespace) -> str:
    """Return a short name of the watched folder or server; empty for an engine or a program."""
    if args.watch is not None:
        return Path(args.watch).absolute().name or "folder"
    return urlsplit(_find_server_address(args)).netloc.rpartition("@")[2]


def start_watcher(args: Namespace, out: Path) -> WatchProcess:
    """Start watching the requested folder or server."""
    if args.watch is not None:
        return WatchProcess(["--folder", str(Path(args.watch).absolute())], out)
    seconds = DEFAULT_WINDOW_S if args.windows is None else args.windows
    timing = ["--windows", str(seconds), "--every", str(args.every or max(DEFAULT_INTERVAL_S, 2 * seconds))]
    timing += ["--silence", str(_options.parse_percent(args.silence or DEFAULT_SILENCE))]
    traces = ["--traces", str(Path(args.traces).absolute())] if args.traces is not None else []
    steps = ["--steps", str(DEFAULT_WINDOW_STEPS if args.steps is None else args.steps)]
    logs = [part for path in args.client_log for part in ("--client-log", str(Path(path).absolute()))]
    return WatchProcess(["--url", _find_server_address(args), *steps, *timing, *traces, *logs], out)


def _check_watch_options(args: Namespace) -> None:
    """Raise UsageError if the requested target cannot be watched."""
    if args.watch is not None:
        if args.command:
            raise UsageError("--watch excludes a program and a server", todo="leave one of them out")
        if Path(args.watch).exists() and not Path(args.watch).is_dir():
            todo = "--watch takes a folder; tracetui open reads a file"
            raise UsageError(f"{args.watch} is not a folder", todo=todo)
    elif _find_server_address(args):
        _check_server_options(args)
    else:
        for name in ("traces", "windows", "every", "silence", "client_log"):
            if getattr(args, name) not in (None, []):
                todo = "write its address, as in http://HOST:PORT"
                raise UsageError(f"--{name.replace('_', '-')} is for a server", todo=todo)


def _check_server_options(args: Namespace) -> None:
    """Raise UsageError for an invalid address or windows that cannot be."""
    from capture.watch.http_client import ServerAddress, read_extra_headers

    ServerAddress.from_url(_find_server_address(args))
    read_extra_headers()
    seconds = DEFAULT_WINDOW_S if args.windows is None else args.windows
    if args.steps is not None and args.steps < 1:
        raise UsageError("--steps of a window is at least 1", todo="--windows 0 profiles nothing")
    if args.every is not None and args.every < seconds:
        todo = "--every is the time between the starts of two windows"
        raise UsageError(f"windows of {seconds:g} s do not fit into {args.every:g} s", todo=todo)
    if not 0 < _options.parse_percent(args.silence or DEFAULT_SILENCE) <= 1:
        raise UsageError(f"--silence {args.silence} is no share", todo="use 1%; --windows 0 profiles nothing")


def has_counters(out: Path) -> bool:
    """Whether a recording contains counters; False if it does not exist."""
    try:
        with out.open("rb") as file:
            return any(line.startswith(_COUNTER_LINE) for line in file)
    except FileNotFoundError:
        return False


def parse_duration(text: str) -> float:
    """Parse 30s, 5m or 1h into seconds; raise ValueError for anything else, and for zero."""
    seconds = parse_window(text)
    if not seconds:
        raise ValueError(text)
    return seconds


def parse_window(text: str) -> float:
    """Parse a duration into seconds, 0 and `off` as zero; raise ValueError for anything else."""
    if text == "off":
        return 0.0
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS_PER_UNIT else (text, "s")
    seconds = float(number) * _SECONDS_PER_UNIT[unit]
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _find_server_address(args: Namespace) -> str:
    """Return the address of a server given in place of a command; empty if there is none."""
    is_address = len(args.command) == 1 and args.command[0].lower().startswith(_URL_SCHEMES)
    return args.command[0] if is_address else ""
