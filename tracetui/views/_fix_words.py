"""What is said of each cause in the ledger: what usually helps, what it rests on, what makes it false."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tracetui.analysis import gap_causes
from tracetui.analysis.ledger_items import COMM, COMPUTE, COPY, GAP, LAUNCH, MEMORY, UNKNOWN


class Words(NamedTuple):
    """What is said of one cause."""

    advice: str  # what usually helps
    basis: str  # what its bound is taken from
    false_if: str
    confidence: str  # high, medium or low
    capture: str = ""  # what to capture next where it cannot be known


_CALLS: Final = "the host's calls beside the kernels: activities=[CPU, CUDA], or nsys --trace=cuda,nvtx"

WORDS: Final[Mapping[str, Words]] = {
    MEMORY: Words(
        "a kernel that reads faster, fewer bytes (quantisation), or more rows a read (batch)",
        "its bytes at the memory's speed",
        "its bytes come from a cache, or the roof is not this device's",
        "medium",
    ),
    COMPUTE: Words(
        "a kernel nearer the arithmetic roof, or a cheaper number format",
        "its operations at the arithmetic's speed",
        "it computes in a format of another roof",
        "medium",
    ),
    LAUNCH: Words(
        "fusing it with its neighbours: its work is less than a launch costs",
        "the least time of a launch",
        "it starts before its predecessor has ended",
        "medium",
    ),
    UNKNOWN: Words(
        "its bound is not known: it counts as needed",
        "no work is known of it",
        "",
        "low",
    ),
    COPY: Words(
        "data that stays on the device, pinned memory, or copies a layer ahead, under the computation",
        "nothing else ran; low: as much as computation could hide",
        "the computation before it has to end first",
        "medium",
    ),
    COMM: Words(
        "overlap with computation (another stream, split batches), or fewer and larger collectives",
        "nothing else ran; low: as much as computation could hide",
        "it waits for a slower rank: then that rank is to be fixed",
        "medium",
        "the other ranks: open their files together, with --merge",
    ),
    gap_causes.HOST: Words(
        "launching ahead: CUDA graphs, fewer launches (fusing, torch.compile), less work between them",
        "nothing ran, and the launch came too late; low: down to the usual delay of a launch",
        "the profiler itself slows the host down: check the step time without it",
        "high",
    ),
    gap_causes.SYNC: Words(
        "not waiting: keep the value on the device, or read it a step later",
        "nothing ran, and the host had been waiting for the device",
        "the value decides what runs next",
        "high",
    ),
    gap_causes.NOTHING: Words(
        "more requests, or larger batches",
        "nothing ran, and the host did nothing",
        "the host worked in a thread or process that was not recorded",
        "medium",
        _CALLS,
    ),
    gap_causes.DEPENDENCY: Words(
        "fewer waits between streams, devices and copies; work that does not depend first",
        "nothing ran, although the launch was in time",
        "the launch itself was held up by the driver",
        "low",
        "stream and event waits: nsys --trace=cuda, which has them",
    ),
    gap_causes.DISPATCH: Words(
        "fewer and longer kernels (fusing), or programmatic dependent launch",
        "nothing ran from one kernel to the next",
        "the clock of the trace is coarser than the gap",
        "low",
    ),
    gap_causes.UNKNOWN: Words(
        "launching ahead: CUDA graphs, fewer launches, less work on the host between them",
        "nothing ran",
        "another device, a copy or a collective was waited for",
        "low",
        _CALLS,
    ),
    GAP: Words(
        "less work between the kernels",
        "nothing measured ran",
        "something ran that was not measured",
        "low",
    ),
}  # fmt: skip
