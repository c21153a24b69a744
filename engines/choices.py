"""What is decided before memory is taken: model, device, storage of the weights, and the way of decoding."""

import argparse
from dataclasses import dataclass
from typing import Final, Literal

import torch

from capture import nvidia
from capture.errors import UsageError
from engines.arguments import AS_STORED
from engines.decoder import bytes_needed
from engines.fused.step import refusal
from engines.models.spec import Spec, parameters
from engines.ranks.launch import share
from engines.ranks.tensor_parallel import Team
from engines.sample import SamplingOptions
from engines.weights import low_bit, storage
from engines.weights.fastest import Measured, fastest, named
from engines.weights.gguf.source import form_of
from engines.weights.gguf.unpack import PLAIN
from engines.weights.low_bit_storage import Quantised
from engines.weights.sources import Choice, check_memory, choose, free_bytes
from engines.weights.storage import Storage
from engines.weights.twelve_bits import InTwelveBits

ROOM: Final = 4096  # positions when nobody says how many

NO_BORDERS: Final = (
    "ROCm times no borders within a graph: layers are timed in windows alone "
    "(--no-graph times them in every step)"
)

Replaying = Literal["", "launched", "graph"]  # how fused kernels decode; empty: torch's ops do


@dataclass(frozen=True)
class Choices:
    """What was decided before anything large is built."""

    choice: Choice
    device: torch.device
    sampling: SamplingOptions
    chosen: Measured
    measured: tuple[Measured, ...]
    capacity: int
    replay: Replaying
    why_replay: str = ""  # what there is to say of it: why torch's ops decode in place of kernels
    team: Team | None = None
    as_stored: bool = False  # nobody asked for a form: that of the file is taken

    @property
    def spec(self) -> Spec:
        """The whole model."""
        return self.choice.spec

    @property
    def own(self) -> Spec:
        """What is decoded here: this rank's share, or everything."""
        return share(self.spec, self.team.rank.size) if self.team else self.spec

    @property
    def quant(self) -> str:
        """The name of the form; weights as they are go by their width."""
        storage = self.chosen.packing
        return storage.name if isinstance(storage, Quantised) else f"q0f{8 * storage.dtype.itemsize}"

    @property
    def unpacking(self) -> str:
        """What to know of a file whose matrices are unpacked; empty where none are."""
        model = self.choice.gguf
        if model is None or not (model.layer_types | model.end_types) - PLAIN.keys():
            return ""
        if isinstance(self.chosen.packing, Quantised) and self.as_stored:
            return ""
        way = self.chosen.packing
        size, held = model.header.size / 1e9, parameters(self.spec) * way.held / 1e9
        return f"{model.stored_as} is unpacked once: {size:.2g} GB are {held:.2g} GB in memory as {way.name}"

    @property
    def why_storage(self) -> str:
        """How the storage came to be chosen."""
        if isinstance(self.chosen.packing, Quantised):
            return "as the file stores it" if self.as_stored else "asked for"
        if isinstance(self.chosen.packing, InTwelveBits):
            return "exactly, in fewer bytes to read; --dtype bf16 keeps them as they are"
        if storage.is_compiled(self.chosen.packing.dtype, self.device):
            return "compiled products read it where it lies"
        if not self.measured:
            return "the only way for this dtype and device"
        rates = ", ".join(f"{m.packing.name} {m.rate / 1e9:.1f}" for m in self.measured)
        return f"measured over a few layers on one core, GB/s: {rates}"


def decide(args: argparse.Namespace, team: Team | None = None) -> Choices:
    """Decide everything that can be refused. Raise UsageError or EngineError before memory is taken."""
    sampling = SamplingOptions(args.temperature, args.top_k, args.top_p, args.seed)
    sampling.check()
    device = find_device(args.device)
    choice = choose(args.model, args.weights)
    spec = share(choice.spec, team.rank.size) if team else choice.spec
    stored = stored_form(args, choice, team)
    capacity = capacity_of(args, spec)
    chosen, measured = choose_storage(args, spec, device, team, stored)
    sharing = team.rank.beside if team and device.type == "cpu" else 1  # ranks that share the memory
    check_room(spec, chosen.packing, device, free_bytes(device) // sharing, args.batch, capacity)
    replay, why_replay = choose_replay(args, spec, sampling, device, alone=team is None)
    return Choices(
        choice, device, sampling, chosen, measured, capacity, replay, why_replay, team, stored is not None
    )


def find_device(name: str) -> torch.device:
    """Return the best device for `auto`, else the one asked for. Raise UsageError where it is not there."""
    there = ["cpu"]
    if torch.accelerator.is_available():
        there.insert(0, str(torch.accelerator.current_accelerator()).split(":")[0])
    if name == "auto":
        return torch.device(there[0])
    if name not in there:
        why = nvidia.why_unused(torch.version.cuda) if name == "cuda" else ""
        todo = f"there is {' and '.join(there)}"
        raise UsageError(f"there is no {name} device here{why and f': {why}'}", todo=todo)
    return torch.device(name)


def capacity_of(args: argparse.Namespace, spec: Spec) -> int:
    """Return how many positions the cache must hold. Raise UsageError for more than the model sees."""
    further = 1 if args.mode == "prefill" else (args.steps or ROOM // 2) + ROOM // 4
    wanted: int = args.capacity or args.context + further
    if args.context >= spec.max_context:
        raise UsageError(f"{spec.name} sees {spec.max_context} positions, not {args.context}")
    return min(wanted, spec.max_context)


def stored_form(args: argparse.Namespace, choice: Choice, team: Team | None) -> low_bit.Form | None:
    """Return the form in which a file stores its matrices, where it is to be kept; ranks take them apart."""
    if args.quant != AS_STORED or args.dtype != "auto" or team or not choice.gguf:
        return None
    return form_of(choice.gguf)


def choose_storage(
    args: argparse.Namespace,
    spec: Spec,
    device: torch.device,
    team: Team | None,
    stored: low_bit.Form | None,
) -> tuple[Measured, tuple[Measured, ...]]:
    """Return how the weights are stored, packed as asked or the fastest way, and what was measured."""
    form = stored or low_bit.FORMS.get(args.quant)
    if form is None:
        return fastest_storage(args, spec, device, team)
    if args.dtype != "auto":
        raise UsageError(f"--quant {form.name} decides the dtype", todo="leave --dtype out")
    widths = [spec.hidden, spec.query_width, spec.experts.ffn if spec.experts else spec.ffn]
    if odd := [n for n in widths if n % low_bit.GROUP]:
        raise UsageError(f"{spec.name} has rows of {odd[0]}, which are not whole groups of {low_bit.GROUP}")
    return Measured(Quantised(form, device), 0.0), ()


def fastest_storage(
    args: argparse.Namespace, spec: Spec, device: torch.device, team: Team | None
) -> tuple[Measured, tuple[Measured, ...]]:
    """Return the fastest storage: the first rank of a team measures, and the others take its choice."""
    if team and team.rank.number:
        return Measured(named(team.broadcast(b"").decode(), args.dtype, device), 0.0), ()
    chosen, measured = fastest(spec, args.dtype, device)
    if team:
        team.broadcast(chosen.packing.name.encode())
    return chosen, measured


def choose_replay(
    args: argparse.Namespace, spec: Spec, sampling: SamplingOptions, device: torch.device, *, alone: bool
) -> tuple[Replaying, str]:
    """Return how fused kernels decode, empty where torch's ops do, and what there is to say of it."""
    if refused := why_no_graph(args, device, alone=alone):
        raise UsageError(refused[0], todo=refused[1])
    if not alone or not has_kernels(args, device):
        return "", why_processor(args, device) if alone else ""
    if why := refusal(spec, sampling, device):
        return "", f"torch's own ops decode: {why}"
    if args.graph is False:
        return "launched", ""
    return "graph", NO_BORDERS if torch.version.hip else ""


def has_kernels(args: argparse.Namespace, device: torch.device) -> bool:
    """Return whether fused kernels are asked for, on a device that may have them."""
    return args.path == "fused" and device.type != "cpu" and not args.slow


def why_no_graph(args: argparse.Namespace, device: torch.device, *, alone: bool) -> tuple[str, str] | None:
    """Return why the graph that was asked for cannot be, and what to do; None where nothing is wrong."""
    if not args.graph:
        return None
    if not alone:
        return "a step of several ranks is not captured", "leave out --graph"
    if not has_kernels(args, device):
        todo = "leave out --graph, or choose --path fused and --device cuda"
        return "--graph captures the fused kernels of a GPU", todo
    return None


def why_processor(args: argparse.Namespace, device: torch.device) -> str:
    """Return why the processor decodes where nobody asked for it and a GPU is here; empty otherwise."""
    why = nvidia.why_unused(torch.version.cuda) if args.device == "auto" and device.type == "cpu" else ""
    return why and f"the processor decodes: {why}"


def check_room(spec: Spec, way: Storage, device: torch.device, free: int, batch: int, capacity: int) -> None:
    """Raise EngineError where the memory has no room for the decoder; it names tighter ways to store it."""

    def needed(spec: Spec, way: Storage = way) -> int:
        return bytes_needed(spec, way, batch=batch, capacity=min(capacity, spec.max_context))

    forms = [Quantised(form, device) for form in low_bit.FORMS.values()]
    ways = {f"--quant {f.name}": needed(spec, f) for f in forms if f.held < way.held}
    check_memory(spec, needed(spec), free, needed, ways)
