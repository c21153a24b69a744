"""`tracetui record`: live without a screen; progress on stderr, the summary on stdout."""

import shutil
import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path

import polars as pl

from capture.errors import EngineError, UsageError
from capture.follow import Follow
from capture.run import Run
from tracetui.process import Bundled, Engine, surroundings
from tracetui.verbs import _shared

MODELS = {"decode": "gemma-3-1b", "prefill": "gemma-3-1b", "train": "cs336-small"}
STEPS = {"decode": 64, "prefill": 10, "train": 10}  # when nobody says how many and nobody watches
QUANTS = ("q0f16", "q4f16_1", "q4f32_1", "q8_0")
EVERY = 0.5  # seconds between two words of progress


def options(parser: ArgumentParser) -> None:
    engine_options(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def engine_options(parser: ArgumentParser) -> None:
    """What the engine is asked; a command after -- takes its place."""
    parser.add_argument("--mode", default="decode", choices=tuple(MODELS), help="what the engine does")
    parser.add_argument("--model", help=" or ".join(dict.fromkeys(MODELS.values())))
    parser.add_argument("--weights", default="auto", help="auto, random or a folder")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps", "xpu"))
    parser.add_argument("--dtype", default="auto", help="auto, fp32, fp16 or bf16")
    parser.add_argument("--quant", choices=QUANTS, help="weights in 16 bits, or packed into 4 or 8")
    parser.add_argument("--prompt", metavar="TEXT", help="what the model shall answer")
    parser.add_argument("--steps", type=int, metavar="N", help="how many; without a screen a few")
    parser.add_argument(
        "--context", type=int, metavar="N", help="begin so deep; in the other modes: the length"
    )
    parser.add_argument("--batch", type=int, metavar="N", help="sequences at once")
    parser.add_argument(
        "--tokens-per-report", type=int, metavar="N", help="tokens that one step row stands for"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="of the processor; one a core")
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="processes that share the model, as torchrun starts them"
    )
    parser.add_argument("--path", choices=("granular", "fused"), help="rows as small as they come, or fused")
    parser.add_argument("--graph", action=BooleanOptionalAction, help="fused kernels replayed as a graph")
    parser.add_argument("--capture", choices=("spans", "windows", "continuous"), help="how much is watched")
    parser.add_argument("--slow", metavar="OP:FACTOR", help="slow one op down, to try the diff on")
    _sampling_options(parser)
    _training_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where the recording goes")
    parser.add_argument(
        "command", nargs="*", metavar="-- CMD", help="any program instead of the bundled engine"
    )


def _sampling_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("how tokens are drawn").add_argument
    add("--temperature", type=float, metavar="T", help="0: the likeliest token")
    add("--top-k", type=int, metavar="N", help="draw from the N likeliest tokens")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest that make up P")
    add("--seed", type=int, metavar="N", help="of the draws, and of random weights")


def _training_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("with --mode train").add_argument
    add("--layers", type=int, metavar="N", help="so many of the model's layers")
    add("--attention", choices=("explicit", "sdpa"), help="written out, or fused by torch")
    add("--optimizer", choices=("cs336", "foreach", "fused"), help="AdamW tensor by tensor, or by torch")
    add("--warm-up", type=int, metavar="N", help="steps that are not recorded")


def engine(args: Namespace, out: Path, *, interactive: bool = False) -> Engine:
    """Starts what was asked for; its lines go to `out`."""
    if args.command:
        return Engine(args.command, surroundings(out), leashed=True)
    return Bundled(arguments(args), out, interactive=interactive)


def arguments(args: Namespace) -> list[str]:
    """The engine's options, those that were given."""
    names = (
        "mode", "model", "weights", "device", "dtype", "quant", "prompt", "steps", "context", "batch",
        "tokens_per_report", "temperature", "top_k", "top_p", "seed", "threads", "ranks", "path", "capture",
        "slow", "layers", "attention", "optimizer", "warm_up",
    )  # fmt: skip
    given = ((f"--{name.replace('_', '-')}", getattr(args, name)) for name in names)
    valued = [part for name, value in given if value is not None for part in (name, str(value))]
    return valued if args.graph is None else [*valued, "--graph" if args.graph else "--no-graph"]


def place(args: Namespace) -> Path:
    """Where the recording goes: as asked, else among the recordings."""
    from capture.places import new_recording

    if args.output is None:
        return new_recording(Path(args.command[0]).name if args.command else args.model or MODELS[args.mode])
    out = Path(args.output)
    if out.exists() and out.stat().st_size:
        raise UsageError(f"{out} is there already", todo="choose another file with -o, or remove it")
    return out


def run(args: Namespace) -> int:
    if args.steps is None and not args.command:
        args.steps = STEPS[args.mode]
        _shared.say(f"recording {args.steps} steps of {args.mode} (--steps changes that)")
    out = place(args)
    running = engine(args, out)
    running.sample_into(out)
    try:
        runs = _watch(running, out, args.quiet)
    finally:
        running.stop()
    if running.obituary():
        raise running.failure(todo=_rest(out, runs))
    if running.complaint:
        raise EngineError(running.complaint, todo=_rest(out, runs))
    _shared.say(f"recorded {out}")
    if not args.quiet and runs:
        from capture.loaders import load
        from tracetui.look import Look
        from tracetui.report import report
        from tracetui.views import view

        width = shutil.get_terminal_size((120, 40)).columns
        sys.stdout.write(report(view("summary"), load(out), Look(), "table", width=width))
    return 0


def _rest(out: Path, runs: list[Run]) -> str:
    """What to do with what a failed engine left; a file without a single timed row is not worth keeping."""
    if any(run.has("dur") for run in runs):
        return f"what was recorded opens: tracetui open {out}"
    out.unlink(missing_ok=True)
    return ""


def _watch(running: Engine, out: Path, quiet: bool) -> list[Run]:
    """Follows the file until the engine ends, telling what it is doing."""
    follow, told, hush = Follow(out), "", ""
    while running.running:
        time.sleep(EVERY)
        if follow.poll() and not quiet:
            told = _progress(follow.runs(), told)
        hush = _hush(running.complaint or follow.silence, hush)
    follow.poll()
    return follow.runs(final=True)


def _hush(silence: str, told: str) -> str:
    """That an engine hangs, once, and that it goes on again."""
    if bool(silence) != bool(told):
        _shared.say(f"{silence}: Ctrl+C ends it" if silence else "the engine is heard again")
    return silence


def _progress(runs: list[Run], told: str) -> str:
    """The steps so far, else the last word of the engine's status; told once."""
    if not runs:
        return told
    events = runs[-1].events
    ended = events.filter(pl.col("kind") == "step")
    steps = ended["step"].n_unique() if "step" in ended.columns else ended.height  # ranks each tell theirs
    status = events.filter(pl.col("path") == "status") if runs[-1].has("path") else events.clear()
    word = f"{steps} steps" if steps else str(status["name"][-1]) if status.height else ""
    if word and word != told:
        _shared.say(word)
    return word
