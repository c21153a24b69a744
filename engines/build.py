"""Build an engine from its arguments and run it; what was chosen on the way stands in the run's meta."""

import argparse
import os
import platform
from typing import Any

import torch

from capture.errors import EngineError
from capture.native.emit import Emitter
from capture.record.torchrun import Rank
from capture.roofs import Roof
from engines.choices import Choices, decide, find_device
from engines.decoder import Decoder
from engines.fused.replay import Replay
from engines.host.commands import Commands
from engines.host.device import OFF, runner
from engines.host.heartbeat import Heartbeat
from engines.host.pauses import no_pauses, pauses
from engines.host.roofs import device_name, roof_of
from engines.host.text import Silent, Text, open_text
from engines.loop import Engine, Limits
from engines.models.spec import Spec, active_parameters, parameters
from engines.planted import with_slow_ops
from engines.ranks.launch import LostError
from engines.ranks.tensor_parallel import RelayedCommands, Share, Team, join_ranks
from engines.weights.low_bit_storage import Quantised
from engines.weights.sources import CountedSource, Source, Tally, open_source
from engines.weights.storage import Storage
from engines.weights.twelve_bits import InTwelveBits


def run(
    args: argparse.Namespace,
    emitter: Emitter,
    id: str,
    heartbeat: Heartbeat,
    commands: Commands,
    rank: Rank | None = None,
) -> None:
    """Decode until the end, alone or as one rank of several; torch is imported by now."""
    commands.check()
    if rank is None:
        decode(args, emitter, id, heartbeat, commands, None)
        return
    heartbeat.status("waiting for the other ranks")
    try:
        team = join_ranks(rank, find_device(args.device))
        decode(args, emitter, id, heartbeat, RelayedCommands(team, commands), team)
        team.leave()
    except LostError:
        commands.check()  # when this rank was asked to end, the others were, too: that is no failure
        raise


def decode(
    args: argparse.Namespace,
    emitter: Emitter,
    id: str,
    heartbeat: Heartbeat,
    commands: Commands,
    team: Team | None,
) -> None:
    """Decide, write down what was decided, build the decoder and run it."""
    if args.threads or team:
        sharing = team.rank.beside if team else 1
        torch.set_num_threads(args.threads or max(1, (os.cpu_count() or 1) // sharing))
    heartbeat.status("choosing how to store the weights")
    choices = decide(args, team)
    text = write_choices(args, choices, emitter, id)
    with torch.inference_mode():
        decoder = build_decoder(args, choices, heartbeat, commands)
        write_packing(args, choices, emitter, id)
        ops = with_slow_ops(decoder.ops, decoder.rows(), args.slow)
        runs = runner(ops, decoder.rows(), choices.device, args.capture)
        replay = None
        if choices.replay:
            graph, borders = choices.replay == "graph", not torch.version.hip
            replay = Replay(decoder, choices.sampling, args.capture, graph=graph, borders=borders)
        # ranks wait for each other: what one of them pauses for would be in the steps of all
        rests = no_pauses if team else pauses(emitter, choices.device, bare=args.capture == OFF)
        limits = Limits(args.steps, args.tokens_per_report, args.interactive)
        engine = Engine(decoder, text, emitter, heartbeat, commands, limits, runs, replay, rests)
        heartbeat.status("warming up")
        try:
            run_engine(args, engine, choices.capacity)
        finally:
            if replay:
                replay.close()


def run_engine(args: argparse.Namespace, engine: Engine, capacity: int) -> None:
    """Run the engine in its mode."""
    if args.mode == "prefill":
        engine.prefill(args.context)
        return
    engine.start_at(min(args.context, capacity - 1))
    engine.warm_up()
    engine.run(args.prompt)


def write_choices(args: argparse.Namespace, choices: Choices, emitter: Emitter, id: str) -> Text:
    """Write what was decided as the run's meta; return the text side, silent but on the first rank."""
    team = choices.team
    first = team is None or team.rank.number == 0
    roof = roof_of(choices.device) if first else None
    if team:
        team.broadcast(b"")  # the others rest while the first measures
    text, note = open_text(choices.choice)
    text, note = (text, note) if first else (Silent(text), "")
    emitter.run(args.model, about(args, choices, text, roof), id=id)
    for line in filter(None, (note, choices.why_replay, choices.unpacking)):
        emitter.mark(line, "note")
    return text


def write_packing(args: argparse.Namespace, choices: Choices, emitter: Emitter, id: str) -> None:
    """Write what packing came to: bytes, and how far quantised weights lie from the original."""
    way = choices.chosen.packing
    if isinstance(way, InTwelveBits):
        emitter.run(args.model, _size(choices.spec, way), id=id)
    if isinstance(way, Quantised):
        emitter.run(args.model, {"quant_error": round(way.error, 5), "computed": way.computed}, id=id)
        emitter.mark(f"{way.name}: {100 * way.error:.2g} % off the weights; {way.computed}", "note")


def build_decoder(
    args: argparse.Namespace, choices: Choices, heartbeat: Heartbeat, commands: Commands
) -> Decoder:
    """Build the decoder, and report the progress of its weights."""

    def progress(share: float) -> None:
        commands.check()
        heartbeat.progress("building weights", share)

    tally, way = Tally(choices.own, progress), choices.chosen.packing
    source: Source = open_source(choices.choice, args.seed, read_dtype(choices))
    if isinstance(way, Quantised):
        way.report = tally.add
    else:
        source = CountedSource(source, tally)
    if choices.team:
        source = Share(source, choices.spec, choices.team)
    try:
        return Decoder(
            choices.own,
            source,
            way,
            choices.device,
            sampling=choices.sampling,
            fused=args.path == "fused",
            batch=args.batch,
            capacity=choices.capacity,
            team=choices.team,
        )
    except OverflowError as e:
        raise EngineError(str(e)) from None


def read_dtype(choices: Choices) -> torch.dtype:
    """Return the dtype of weights that are made up or unpacked: that of the storage, else 16 bits to pack."""
    way = choices.chosen.packing
    if not isinstance(way, Quantised):
        return way.dtype
    return torch.float16 if choices.choice.gguf else torch.bfloat16


def about(args: argparse.Namespace, choices: Choices, text: Text, roof: Roof | None) -> dict[str, Any]:
    """Return the run's meta: what a reader must know to judge its numbers."""
    spec, way, team = choices.spec, choices.chosen.packing, choices.team
    facts: dict[str, Any] = {
        "device": device_name(choices.device), "dtype": str(way.dtype).removeprefix("torch."),
        "quant": choices.quant, "packing": way.name, "packing_why": choices.why_storage,
        "path": args.path, "decode": choices.replay or None,
        "weights": str(choices.choice.place or f"random({args.seed})"),
        "stored_as": choices.choice.stored_as,
        "text": "real" if text.meaning else "token ids",
        "batch": args.batch, "tokens_per_report": args.tokens_per_report,
        "ranks": team and team.rank.size, "layers": spec.layers,
        **_size(spec, way), "roof": roof and roof.as_meta(),
        "capacity": choices.capacity, "mode": args.mode,
        "prompt_tokens" if args.mode == "prefill" else "made_up_context": args.context or None,
        "sampling": sampling_text(args),
        "threads": torch.get_num_threads(), "capture": args.capture,
        "producer": "tracetui engines", "torch": torch.__version__, "python": platform.python_version(),
        "slow": [f"{name}:{factor}" for name, factor in args.slow] or None,
    }  # fmt: skip
    return {key: value for key, value in facts.items() if value is not None}


def _size(spec: Spec, way: Storage) -> dict[str, int]:
    """Return how many weights a model has, how many of them a token takes if not all, and their bytes."""
    whole, active = parameters(spec), active_parameters(spec)
    some = {"active_parameters": active} if active < whole else {}
    return {"parameters": whole, **some, "bytes_per_token": round(active * way.weight_bytes)}


def sampling_text(args: argparse.Namespace) -> str:
    """Return how tokens are chosen, for a person."""
    if args.temperature == 0:
        return "greedy"
    return f"temperature={args.temperature} top_k={args.top_k} top_p={args.top_p} seed={args.seed}"
