"""Choices before memory is allocated: model, device, storage of the weights, and decoding path."""

import argparse
from dataclasses import dataclass
from typing import Final, Literal

import torch

from capture import nvidia
from capture.errors import UsageError
from engines.arguments import AS_STORED
from engines.decoder import estimate_decoder_bytes
from engines.fused.fused_step import explain_refusal
from engines.models.spec import Spec, count_parameters
from engines.ranks.rank_launcher import share_spec
from engines.ranks.tensor_parallel import Team
from engines.token_sampling import SamplingOptions
from engines.weights import low_bit, matrix_storage
from engines.weights.bf12_storage import Bf12Storage
from engines.weights.fastest_storage import MeasuredStorage, find_fastest_storage, find_storage
from engines.weights.gguf.block_unpacking import PLAIN_DTYPES
from engines.weights.gguf.gguf_source import find_common_format
from engines.weights.matrix_storage import Storage
from engines.weights.quantised_storage import QuantisedStorage
from engines.weights.weight_sources import ModelChoice, check_memory, choose_model, read_free_bytes

DEFAULT_CAPACITY: Final = 4096  # positions
NO_GRAPH_BORDERS: Final = (
    "ROCm cannot time layers within a graph: they are timed in profiler windows only "
    "(--no-graph times them in every step)"
)

ReplayMode = Literal["", "launched", "graph"]  # how fused kernels run; empty: torch ops decode


@dataclass(frozen=True)
class StartupChoices:
    """Choices made before anything large is built."""

    model: ModelChoice
    local_spec: Spec  # of the part decoded here: this rank's share, or the whole model
    device: torch.device
    sampling: SamplingOptions
    storage: Storage
    measured: tuple[MeasuredStorage, ...]
    capacity: int
    replay_mode: ReplayMode
    replay_note: str = ""  # why torch ops decode instead of kernels, or a limit of the graph
    team: Team | None = None
    keeps_stored_format: bool = False  # no format was requested: that of the file is used

    @property
    def spec(self) -> Spec:
        """The whole model."""
        return self.model.spec

    @property
    def quant(self) -> str:
        """Name of the quantisation format; plain weights are named by their width."""
        is_quantised = isinstance(self.storage, QuantisedStorage)
        return self.storage.name if is_quantised else f"q0f{8 * self.storage.dtype.itemsize}"

    @property
    def unpacking_note(self) -> str:
        """Note about a file whose matrices are unpacked; empty if none are."""
        model = self.model.gguf
        if model is None or not (model.layer_types | model.embedding_types) - PLAIN_DTYPES.keys():
            return ""
        if isinstance(self.storage, QuantisedStorage) and self.keeps_stored_format:
            return ""
        size, held = model.header.size / 1e9, count_parameters(self.spec) * self.storage.held_bytes / 1e9
        name = self.storage.name
        return f"{model.stored_as} is unpacked: {size:.2g} GB take {held:.2g} GB in memory as {name}"

    @property
    def storage_reason(self) -> str:
        """Why this storage was chosen."""
        if isinstance(self.storage, QuantisedStorage):
            return "as stored in the file" if self.keeps_stored_format else "requested"
        if isinstance(self.storage, Bf12Storage):
            return "lossless, with fewer bytes to read; --dtype bf16 keeps the weights as they are"
        if matrix_storage.has_compiled_product(self.storage.dtype, self.device):
            return "compiled products read this dtype directly"
        if not self.measured:
            return "the only way for this dtype and device"
        rates = ", ".join(f"{m.storage.name} {m.bytes_per_s / 1e9:.1f}" for m in self.measured)
        return f"measured over a few layers on one core, GB/s: {rates}"


def make_choices(args: argparse.Namespace, team: Team | None = None) -> StartupChoices:
    """Make all choices. Raise UsageError or EngineError before memory is allocated."""
    sampling = SamplingOptions(args.temperature, args.top_k, args.top_p, args.seed)
    sampling.check()
    device = find_device(args.device)
    model = choose_model(args.model, args.weights)
    spec = share_spec(model.spec, team.rank.size) if team else model.spec
    stored_format = None
    if args.quant == AS_STORED and args.dtype == "auto" and model.gguf and not team:  # ranks split matrices
        stored_format = find_common_format(model.gguf)
    capacity = compute_capacity(args, spec)
    storage, measured = choose_storage(args, spec, device, team, stored_format)
    ranks_here = team.rank.local_size if team and device.type == "cpu" else 1  # ranks that share the memory
    check_decoder_fits(spec, storage, device, read_free_bytes(device) // ranks_here, args.batch, capacity)
    replay = choose_replay_mode(args, spec, sampling, device, is_single_rank=team is None)
    keeps = stored_format is not None
    return StartupChoices(model, spec, device, sampling, storage, measured, capacity, *replay, team, keeps)


def find_device(name: str) -> torch.device:
    """Return the requested device, or the best one for `auto`. Raise UsageError if it is not available."""
    available = ["cpu"]
    if torch.accelerator.is_available():
        available.insert(0, str(torch.accelerator.current_accelerator()).split(":")[0])
    if name == "auto":
        return torch.device(available[0])
    if name not in available:
        reason = nvidia.explain_unused_gpu(torch.version.cuda) if name == "cuda" else ""
        todo = f"available: {', '.join(available)}"
        raise UsageError(f"no {name} device here{reason and f': {reason}'}", todo=todo)
    return torch.device(name)


def compute_capacity(args: argparse.Namespace, spec: Spec) -> int:
    """Return the number of positions the cache must hold. Raise UsageError for more than the model sees."""
    generated = 1 if args.mode == "prefill" else (args.steps or DEFAULT_CAPACITY // 2) + DEFAULT_CAPACITY // 4
    capacity: int = args.capacity or args.context + generated
    if args.context >= spec.max_context:
        raise UsageError(f"--context {args.context}: {spec.name} sees at most {spec.max_context} positions")
    return min(capacity, spec.max_context)


def choose_storage(
    args: argparse.Namespace,
    spec: Spec,
    device: torch.device,
    team: Team | None,
    stored_format: low_bit.QuantFormat | None,
) -> tuple[Storage, tuple[MeasuredStorage, ...]]:
    """Choose the storage: quantised as requested, or the fastest; return it and all measured."""
    format = stored_format or low_bit.QUANT_FORMATS.get(args.quant)
    if format is None:
        return choose_fastest_storage(args, spec, device, team)
    if args.dtype != "auto":
        raise UsageError(f"--quant {format.name} sets the dtype", todo="omit --dtype")
    widths = [spec.hidden, spec.query_width, spec.experts.ffn if spec.experts else spec.ffn]
    if unaligned := [n for n in widths if n % low_bit.GROUP]:
        why = f"its rows of {unaligned[0]} are not a multiple of {low_bit.GROUP}"
        raise UsageError(f"{spec.name} cannot be quantised", why=why)
    return QuantisedStorage(format, device), ()


def choose_fastest_storage(
    args: argparse.Namespace, spec: Spec, device: torch.device, team: Team | None
) -> tuple[Storage, tuple[MeasuredStorage, ...]]:
    """Find the fastest storage; in a team the first rank measures and the others use its choice."""
    if team and team.rank.number:
        return find_storage(team.broadcast(b"").decode(), args.dtype, device), ()
    storage, measured = find_fastest_storage(spec, args.dtype, device)
    if team:
        team.broadcast(storage.name.encode())
    return storage, measured


def choose_replay_mode(
    args: argparse.Namespace,
    spec: Spec,
    sampling: SamplingOptions,
    device: torch.device,
    *,
    is_single_rank: bool,
) -> tuple[ReplayMode, str]:
    """Choose how fused kernels run, empty if torch ops decode; also return a note about it.

    Raise UsageError for a requested graph that is impossible.
    """
    may_use_kernels = args.path == "fused" and device.type != "cpu" and not args.slow
    if args.graph and not is_single_rank:
        raise UsageError("--graph does not support several ranks", todo="omit --graph")
    if args.graph and not may_use_kernels:
        todo = "omit --graph, or choose --path fused and --device cuda"
        raise UsageError("--graph needs the fused kernels of a GPU", todo=todo)
    if not is_single_rank:
        return "", ""
    if not may_use_kernels:
        return "", explain_cpu_fallback(args, device)
    if reason := explain_refusal(spec, sampling, device):
        return "", f"torch ops decode: {reason}"
    if args.graph is False:
        return "launched", ""
    return "graph", NO_GRAPH_BORDERS if torch.version.hip else ""


def explain_cpu_fallback(args: argparse.Namespace, device: torch.device) -> str:
    """Return why `--device auto` chose the CPU although a GPU is present; empty otherwise."""
    is_fallback = args.device == "auto" and device.type == "cpu"
    reason = nvidia.explain_unused_gpu(torch.version.cuda) if is_fallback else ""
    return reason and f"the CPU decodes: {reason}"


def check_decoder_fits(
    spec: Spec, storage: Storage, device: torch.device, free: int, batch: int, capacity: int
) -> None:
    """Raise EngineError if memory is too small for the decoder, naming smaller storages that fit."""

    def estimate(spec: Spec, storage: Storage = storage) -> int:
        return estimate_decoder_bytes(spec, storage, batch=batch, capacity=min(capacity, spec.max_context))

    formats = [QuantisedStorage(form, device) for form in low_bit.QUANT_FORMATS.values()]
    alternatives = {
        f"--quant {quantised.name}": estimate(spec, quantised)
        for quantised in formats
        if quantised.held_bytes < storage.held_bytes
    }
    check_memory(spec, estimate(spec), free, estimate, alternatives)
