"""Build a decode engine from its arguments and run it; its choices are written to the run's meta."""

import argparse
import os
import platform
from collections.abc import Sequence
from typing import Any, Final

import torch

from capture.device_roofs import Roof
from capture.errors import EngineError, UsageError
from capture.native.emit import now
from engines.decode_loop import DecodeEngine, RunLimits
from engines.decoder import Decoder
from engines.fused.run_ahead import RunAhead
from engines.host.engine_commands import RunningEngine
from engines.host.idle_work import build_idle_work
from engines.host.measure_roofs import find_device_name, find_roof
from engines.host.op_runners import OFF, Op, make_runner
from engines.host.tokenizer_text import SilentText, TextCodec, open_text
from engines.models.spec import Spec, count_active_parameters, count_parameters
from engines.plan import PlannedOp
from engines.ranks.rank_launcher import RankLostError
from engines.ranks.tensor_parallel import RelayedCommands, ShardedSource, Team, join_ranks
from engines.startup_choices import StartupChoices, find_device, make_choices
from engines.weights.bf12_storage import Bf12Storage
from engines.weights.checkpoint import WeightSource
from engines.weights.matrix_storage import Storage
from engines.weights.quantised_storage import QuantisedStorage
from engines.weights.weight_sources import CountedSource, WeightTally, open_source

MAX_SLOWDOWN: Final = 100.0


def run(engine: RunningEngine) -> None:
    """Decode until the end, alone or as one rank of several. torch must be imported."""
    commands, rank = engine.commands, engine.rank
    commands.check_signals()
    if rank is None:
        decode(engine, None)
        return
    engine.heartbeat.write_status("waiting for the other ranks")
    try:
        team = join_ranks(rank, find_device(engine.args.device))
        decode(engine._replace(commands=RelayedCommands(team, commands)), team)
        team.leave()
    except RankLostError:
        commands.check_signals()  # a signal to end reaches all ranks: that is not a failure
        raise


def decode(engine: RunningEngine, team: Team | None) -> None:
    """Make all choices, write them to the recording, build the decoder and run it."""
    args, emitter, _, heartbeat, commands, _ = engine
    if args.threads or team:
        ranks_here = team.rank.local_size if team else 1
        torch.set_num_threads(args.threads or max(1, (os.cpu_count() or 1) // ranks_here))
    heartbeat.write_status("choosing how to store the weights")
    choices = make_choices(args, team)
    text = write_choices(engine, choices)
    with torch.inference_mode():
        decoder = build_decoder(engine, choices)
        write_packing(engine, choices)
        ops = inject_slowdowns(decoder.ops, decoder.plan_step(), args.slow)
        runner = make_runner(ops, decoder.plan_step(), choices.device, args.capture)
        run_ahead = build_run_ahead(args.capture, choices, decoder)
        # ranks wait for each other, so idle work of one would delay the steps of all
        idle_work = None if team else build_idle_work(emitter, choices.device, is_bare=args.capture == OFF)
        limits = RunLimits(args.steps, args.tokens_per_report, args.interactive)
        loop = DecodeEngine(decoder, text, emitter, heartbeat, commands, limits, runner, run_ahead, idle_work)
        heartbeat.write_status("warming up")
        try:
            if args.mode == "prefill":
                loop.run_prefills(args.context)
            else:
                loop.fill_context(min(args.context, choices.capacity - 1))
                loop.warm_up()
                loop.run(args.prompt)
        finally:
            if run_ahead:
                run_ahead.close()


def build_run_ahead(mode: str, choices: StartupChoices, decoder: Decoder) -> RunAhead | None:
    """Build the fused steps that run ahead; None if torch ops decode."""
    if not choices.replay_mode:
        return None
    uses_graph, can_time = choices.replay_mode == "graph", not torch.version.hip
    return RunAhead(decoder, choices.sampling, mode, uses_graph=uses_graph, can_time_graphs=can_time)


def write_choices(engine: RunningEngine, choices: StartupChoices) -> TextCodec:
    """Write the choices as the run's meta; return the text codec, silent on all but the first rank."""
    team = choices.team
    is_first_rank = team is None or team.rank.number == 0
    roof = find_roof(choices.device) if is_first_rank else None
    if team:
        team.broadcast(b"")  # the others rest while the first measures
    codec, note = open_text(choices.model)
    text, note = (codec, note) if is_first_rank else (SilentText(codec), "")
    engine.write_meta(engine.args.model, build_meta(engine.args, choices, text, roof))
    for line in filter(None, (note, choices.replay_note, choices.unpacking_note)):
        engine.emitter.mark(line, "note")
    return text


def write_packing(engine: RunningEngine, choices: StartupChoices) -> None:
    """Write the bytes per token, and the error of quantised weights."""
    storage, model = choices.storage, engine.args.model
    if isinstance(storage, Bf12Storage):
        engine.write_meta(model, _count_weights(choices.spec, storage))
    if isinstance(storage, QuantisedStorage):
        error, computed = storage.error, storage.computed
        engine.write_meta(model, {"quant_error": round(error, 5), "computed": computed})
        note = f"{storage.name}: {100 * error:.2g} % error of the weights; {computed}"
        engine.emitter.mark(note, "note")


def build_decoder(engine: RunningEngine, choices: StartupChoices) -> Decoder:
    """Build the decoder while reporting progress."""
    args, storage = engine.args, choices.storage
    tally = WeightTally(choices.local_spec, engine.report_built)
    if isinstance(storage, QuantisedStorage):  # random and unpacked weights come in 16 bits
        storage.report_packed = tally.add
        dtype = torch.float16 if choices.model.gguf else torch.bfloat16
        source: WeightSource = open_source(choices.model, args.seed, dtype)
    else:
        source = CountedSource(open_source(choices.model, args.seed, storage.dtype), tally)
    if choices.team:
        source = ShardedSource(source, choices.spec, choices.team)
    try:
        return Decoder(
            choices.local_spec,
            source,
            storage,
            choices.device,
            sampling=choices.sampling,
            fused=args.path == "fused",
            batch=args.batch,
            capacity=choices.capacity,
            team=choices.team,
        )
    except OverflowError as e:
        raise EngineError(str(e)) from None


def build_meta(
    args: argparse.Namespace, choices: StartupChoices, text: TextCodec, roof: Roof | None
) -> dict[str, Any]:
    """Build the run's meta: what a reader needs to judge its numbers."""
    spec, storage, team = choices.spec, choices.storage, choices.team
    facts: dict[str, Any] = {
        "device": find_device_name(choices.device), "dtype": str(storage.dtype).removeprefix("torch."),
        "quant": choices.quant, "packing": storage.name, "packing_why": choices.storage_reason,
        "path": args.path, "decode": choices.replay_mode or None,
        "weights": str(choices.model.path or f"random({args.seed})"),
        "stored_as": choices.model.stored_as,
        "text": "real" if text.has_meaning else "token ids",
        "batch": args.batch, "tokens_per_report": args.tokens_per_report,
        "ranks": team and team.rank.size, "layers": spec.layers,
        **_count_weights(spec, storage), "roof": roof and roof.as_meta(),
        "capacity": choices.capacity, "mode": args.mode,
        "prompt_tokens" if args.mode == "prefill" else "made_up_context": args.context or None,
        "sampling": describe_sampling(args),
        "threads": torch.get_num_threads(), "capture": args.capture,
        "producer": "tracetui engines", "torch": torch.__version__, "python": platform.python_version(),
        "slow": [f"{name}:{factor}" for name, factor in args.slow] or None,
    }  # fmt: skip
    return {key: value for key, value in facts.items() if value is not None}


def _count_weights(spec: Spec, storage: Storage) -> dict[str, int]:
    """Count the weights of a model, those active per token if fewer, and their bytes."""
    total, active = count_parameters(spec), count_active_parameters(spec)
    active_entry = {"active_parameters": active} if active < total else {}
    return {"parameters": total, **active_entry, "bytes_per_token": round(active * storage.weight_bytes)}


def describe_sampling(args: argparse.Namespace) -> str:
    """Format the sampling options for the meta."""
    if args.temperature == 0:
        return "greedy"
    return f"temperature={args.temperature} top_k={args.top_k} top_p={args.top_p} seed={args.seed}"


def inject_slowdowns(
    ops: Sequence[Op], rows: Sequence[PlannedOp], slowdowns: Sequence[tuple[str, float]]
) -> tuple[Op, ...]:
    """Slow down the ops whose name, role or scope is listed; tests look for this known regression.

    Raise UsageError for a name that matches no op.
    """
    slowed_ops = list(ops)
    for name, factor in slowdowns:
        indices = [i for i, row in enumerate(rows) if name in (row.name, row.op, row.scope)]
        if not indices:
            raise UsageError(f"--slow: no op is named {name}")
        for i in indices:
            slowed_ops[i] = slow_down(slowed_ops[i], factor)
    return tuple(slowed_ops)


def slow_down(op: Op, factor: float) -> Op:
    """Make an op take `factor` times as long."""

    def run_slowly() -> None:
        start = now()
        op()
        end = start + int((now() - start) * min(factor, MAX_SLOWDOWN))
        while now() < end:
            pass

    return run_slowly
