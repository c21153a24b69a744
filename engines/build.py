"""From arguments to a running engine: each choice on the way is told in the run's meta."""

import argparse
import os
import platform
from dataclasses import dataclass
from typing import Any, Literal

import torch

from capture.errors import EngineError, UsageError
from capture.native.emit import Emitter
from capture.record.torchrun import Rank
from capture.roofs import Roof
from engines.decoder import Decoder, bytes_needed
from engines.fused.replay import Replay
from engines.fused.step import refusal
from engines.host.commands import Commands
from engines.host.device import runner
from engines.host.heartbeat import Pulse
from engines.host.roofs import device_name, roof_of
from engines.host.text import Text, Untold, open_text
from engines.host.trace import Op, slowed
from engines.loop import Engine, Limits
from engines.models.spec import Spec, parameters
from engines.ranks.launch import LostError, share
from engines.ranks.tensor_parallel import Relayed, Share, Team, meet
from engines.sample import Taste
from engines.weights import low_bit, storage
from engines.weights.low_bit_storage import Quantised
from engines.weights.sources import (
    Choice,
    Counted,
    Source,
    Tally,
    check_memory,
    choose,
    free_bytes,
    open_source,
)
from engines.weights.storage import Storage

ROOM = 4096  # positions when nobody says how many


@dataclass(frozen=True)
class Parts:
    """What was decided before anything large is built."""

    choice: Choice
    device: torch.device
    taste: Taste
    chosen: storage.Measured
    measured: tuple[storage.Measured, ...]
    capacity: int
    replay: Literal["", "launched", "graph"]  # how fused kernels decode; empty: torch's ops do
    why_ops: str = ""
    team: Team | None = None

    @property
    def spec(self) -> Spec:
        return self.choice.spec

    @property
    def own(self) -> Spec:
        """What is decoded here: this rank's share, or everything."""
        return share(self.spec, self.team.rank.size) if self.team else self.spec

    @property
    def quant(self) -> str:
        """The form's name; weights as they are go by their width."""
        way = self.chosen.packing
        return way.name if isinstance(way, Quantised) else f"q0f{8 * way.dtype.itemsize}"


def run(
    args: argparse.Namespace, emitter: Emitter, id: str, pulse: Pulse, commands: Commands,
    rank: Rank | None = None,
) -> None:  # fmt: skip
    """The whole life of an engine, after torch is there."""
    commands.check()
    if rank is None:
        live(args, emitter, id, pulse, commands, None)
        return
    pulse.status("waiting for the other ranks")
    try:
        team = meet(rank, find_device(args.device))
        live(args, emitter, id, pulse, Relayed(team, commands), team)
        team.leave()
    except LostError:
        commands.check()  # who was asked to end is not surprised that the others ended, too
        raise


def live(
    args: argparse.Namespace, emitter: Emitter, id: str, pulse: Pulse, commands: Commands, team: Team | None
) -> None:
    """The same, alone or as one of a team."""
    if args.threads or team:
        sharing = team.rank.beside if team else 1
        torch.set_num_threads(args.threads or max(1, (os.cpu_count() or 1) // sharing))
    pulse.status("choosing how to store the weights")
    parts = decide(args, team)
    first = team is None or team.rank.number == 0
    roof = roof_of(parts.device) if first else None
    if team:
        team.hear(b"")  # the others rest while the first measures
    text, note = open_text(parts.choice.folder, parts.spec)
    text, note = (text, note) if first else (Untold(text), "")
    emitter.run(args.model, about(args, parts, text, roof), id=id)
    for said in filter(None, (note, parts.why_ops)):
        emitter.mark(said, "note")
    with torch.inference_mode():
        decoder = build(args, parts, pulse, commands)
        if isinstance(way := parts.chosen.packing, Quantised):
            emitter.run(args.model, {"quant_error": round(way.error, 5), "computed": way.computed}, id=id)
            emitter.mark(f"{way.name}: {100 * way.error:.2g} % off the weights; {way.computed}", "note")
        limits = Limits(args.steps, args.tokens_per_report, args.interactive)
        ops = planted(decoder, args.slow)
        runs = runner(ops, decoder.rows(), parts.device, args.capture)
        replay = parts.replay and Replay(decoder, parts.taste, args.capture, graph=parts.replay == "graph")
        engine = Engine(decoder, text, emitter, pulse, commands, limits, runs, replay or None)
        pulse.status("warming up")
        try:
            if args.mode == "prefill":
                engine.prefill(args.context)
            else:
                engine.start_at(min(args.context, parts.capacity - 1))
                engine.warm_up()
                engine.run(args.prompt)
        finally:
            if replay:
                replay.close()


def decide(args: argparse.Namespace, team: Team | None = None) -> Parts:
    """Everything that can be refused is refused here, before memory is taken."""
    taste = Taste(args.temperature, args.top_k, args.top_p, args.seed)
    taste.check()
    device = find_device(args.device)
    choice = choose(args.model, args.weights)
    spec = share(choice.spec, team.rank.size) if team else choice.spec
    capacity = room(args, spec)
    chosen, measured = stored(args, spec, device, team)
    beside = team.rank.beside if team and device.type == "cpu" else 1  # who shares the memory
    check_room(spec, chosen.packing, device, free_bytes(device) // beside, args.batch, capacity)
    way = way_of_decoding(args, spec, taste, device, alone=team is None)
    return Parts(choice, device, taste, chosen, measured, capacity, *way, team)


def fastest(
    args: argparse.Namespace, spec: Spec, device: torch.device, team: Team | None
) -> tuple[storage.Measured, tuple[storage.Measured, ...]]:
    """How weights are stored: of a team the first rank measures, and the others do as it says."""
    if team and team.rank.number:
        said = team.hear(b"").decode()
        ways = (way for way in storage.candidates(args.dtype, device.type) if way.name == said)
        return storage.Measured(next(ways), 0.0), ()
    chosen, measured = storage.fastest(spec, args.dtype, device)
    if team:
        team.hear(chosen.packing.name.encode())
    return chosen, measured


def way_of_decoding(
    args: argparse.Namespace, spec: Spec, taste: Taste, device: torch.device, *, alone: bool
) -> tuple[Literal["", "launched", "graph"], str]:
    """Fused kernels, in a graph if nobody objects; or torch's ops, and why."""
    if not alone:
        if args.graph:
            raise UsageError("a step of several ranks is not captured", todo="leave out --graph")
        return "", ""
    if args.path == "granular" or device.type == "cpu" or args.slow:
        if args.graph:
            todo = "leave out --graph, or choose --path fused and --device cuda"
            raise UsageError("--graph captures the fused kernels of a GPU", todo=todo)
        return "", ""
    if why := refusal(spec, taste, device):
        return "", f"torch's own ops decode: {why}"
    if torch.version.hip:
        if args.graph:
            raise UsageError("ROCm times no borders within a graph", todo="leave out --graph")
        return "launched", "kernels are launched one by one: ROCm times no borders within a graph"
    return ("launched" if args.graph is False else "graph"), ""


def find_device(name: str) -> torch.device:
    """The best there is, or the one asked for when it is there."""
    there = ["cpu"]
    if torch.accelerator.is_available():
        there.insert(0, str(torch.accelerator.current_accelerator()).split(":")[0])
    if name == "auto":
        return torch.device(there[0])
    if name not in there:
        raise UsageError(f"there is no {name} device here", todo=f"there is {' and '.join(there)}")
    return torch.device(name)


def room(args: argparse.Namespace, spec: Spec) -> int:
    """Positions that the cache must hold."""
    further = 1 if args.mode == "prefill" else (args.steps or ROOM // 2) + ROOM // 4
    wanted: int = args.capacity or args.context + further
    if args.context >= spec.max_context:
        raise UsageError(f"{spec.name} sees {spec.max_context} positions, not {args.context}")
    return min(wanted, spec.max_context)


def stored(
    args: argparse.Namespace, spec: Spec, device: torch.device, team: Team | None
) -> tuple[storage.Measured, tuple[storage.Measured, ...]]:
    """How the weights are kept: packed as asked, else the fastest way for their dtype."""
    form = low_bit.FORMS.get(args.quant)
    if form is None:
        return fastest(args, spec, device, team)
    if args.dtype != "auto":
        raise UsageError(f"--quant {form.name} decides the dtype", todo="leave --dtype out")
    if odd := [n for n in (spec.hidden, spec.query_width, spec.ffn) if n % low_bit.GROUP]:
        raise UsageError(f"{spec.name} has rows of {odd[0]}, which are not whole groups of {low_bit.GROUP}")
    return storage.Measured(Quantised(form, device), 0.0), ()


def check_room(spec: Spec, way: Storage, device: torch.device, free: int, batch: int, capacity: int) -> None:
    """Refuses a decoder that the memory has no room for, and names tighter ways to store it."""

    def needed(spec: Spec, way: Storage = way) -> int:
        return bytes_needed(spec, way, batch=batch, capacity=min(capacity, spec.max_context))

    forms = [Quantised(form, device) for form in low_bit.FORMS.values()]
    ways = {f"--quant {f.name}": needed(spec, f) for f in forms if f.held < way.held}
    check_memory(spec, needed(spec), free, needed, ways)


def build(args: argparse.Namespace, parts: Parts, pulse: Pulse, commands: Commands) -> Decoder:
    """The decoder, telling how far it has come."""

    def progress(share: float) -> None:
        commands.check()
        pulse.progress("building weights", share)

    tally, way = Tally(parts.own, progress), parts.chosen.packing
    stored = torch.bfloat16 if isinstance(way, Quantised) else way.dtype
    source: Source = open_source(parts.choice, args.seed, stored)
    if isinstance(way, Quantised):
        way.tell = tally.add
    else:
        source = Counted(source, tally)
    if parts.team:
        source = Share(source, parts.spec, parts.team)
    try:
        return Decoder(
            parts.own, source, way, parts.device,
            taste=parts.taste, fused=args.path == "fused", batch=args.batch, capacity=parts.capacity,
            team=parts.team,
        )  # fmt: skip
    except OverflowError as e:
        raise EngineError(str(e)) from None


def planted(decoder: Decoder, slow: list[tuple[str, float]]) -> tuple[Op, ...]:
    """The decoder's ops, with those slowed down that a test names."""
    ops = list(decoder.ops)
    for name, factor in slow:
        hit = [i for i, row in enumerate(decoder.rows()) if name in (row.name, row.op, row.scope)]
        if not hit:
            raise UsageError(f"--slow: no op is called {name}")
        for i in hit:
            ops[i] = slowed(ops[i], factor)
    return tuple(ops)


def about(args: argparse.Namespace, parts: Parts, text: Text, roof: Roof | None) -> dict[str, Any]:
    """The run's meta: what a reader must know to judge its numbers."""
    spec, way = parts.spec, parts.chosen.packing
    known: dict[str, Any] = {
        "device": device_name(parts.device), "dtype": str(way.dtype).removeprefix("torch."),
        "quant": parts.quant, "packing": way.name, "packing_why": why(parts),
        "path": args.path, "decode": parts.replay or None,
        "weights": str(parts.choice.folder) if parts.choice.folder else f"random({args.seed})",
        "text": "real" if text.meaning else "token ids",
        "batch": args.batch, "tokens_per_report": args.tokens_per_report,
        "ranks": parts.team and parts.team.rank.size, "layers": spec.layers, "parameters": parameters(spec),
        "bytes_per_token": round(parameters(spec) * way.weight_bytes), "roof": roof and roof.as_meta(),
        "capacity": parts.capacity, "mode": args.mode,
        "prompt_tokens" if args.mode == "prefill" else "made_up_context": args.context or None,
        "sampling": "greedy" if args.temperature == 0 else
                    f"temperature={args.temperature} top_k={args.top_k} top_p={args.top_p} seed={args.seed}",
        "threads": torch.get_num_threads(), "capture": args.capture,
        "producer": "tracetui engines", "torch": torch.__version__, "python": platform.python_version(),
        "slow": [f"{name}:{factor}" for name, factor in args.slow] or None,
    }  # fmt: skip
    return {key: value for key, value in known.items() if value is not None}


def why(parts: Parts) -> str:
    """How the packing came to be chosen."""
    if isinstance(parts.chosen.packing, Quantised):
        return "asked for"
    if not parts.measured:
        return "the only way for this dtype and device"
    rates = ", ".join(f"{m.packing.name} {m.rate / 1e9:.1f}" for m in parts.measured)
    return f"measured over a few layers on one core, GB/s: {rates}"
