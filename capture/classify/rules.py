"""The rules that read the layer and the phase of a name: each phase rule has an id that stays, and an example."""

import re
from typing import Final, NamedTuple


class PhaseRule(NamedTuple):
    """A pattern in a name or path, and the phase that it means."""

    id: str
    pattern: re.Pattern[str]
    phase: str
    example: str


LAYER: Final = re.compile(
    r"(?:\bL|\blayers?[._/ \[]?|\bblocks?[._/ ]|\bblk\.|\bh\.|\btransformer[._]h[._])(\d{1,4})(?!\d)"
)

# id, pattern, phase, example; the first that fits decides
PHASE_RULES: Final = tuple(
    PhaseRule(id, re.compile(pattern, re.IGNORECASE), phase, example)
    for id, pattern, phase, example in (
        ("phase.prefill",   r"prefill|prompt.?processing",      "prefill",   "Prompt Processing"),
        ("phase.decode",    r"decode(?!r)|generation.?loop",    "decode",    "Generation Loop"),
        ("phase.backward",  r"backward|autograd::engine",       "backward",  "autograd::engine::evaluate_function"),
        ("phase.optimizer", r"optimizer",                       "optimizer", "Optimizer.step#AdamW.step"),
        ("phase.forward",   r"forward_pass|\bforward\b",        "forward",   "LlamaDecoderLayer.forward"),
    )
)  # fmt: skip
