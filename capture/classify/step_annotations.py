"""Parse the step annotations of serving engines: phase, requests, tokens, attention sums.

Each grammar is a regular expression for the complete annotation; `GRAMMARS` names the engine that writes it.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace


class AttentionSums(Struct, frozen=True):
    """Sums over the requests of one kind (prefill or decode) in a step; None if not annotated.

    With q new tokens and k keys per request, the cost of attention is proportional to Σq·k; Σq² is needed to
    subtract the part of a prompt's square that a causal mask leaves out.
    """

    requests: int
    queries: int | None = None
    keys: int | None = None
    queries_squared: int | None = None
    queries_keys: int | None = None


class StepAnnotation(Struct, frozen=True):
    """The contents of one annotation; None for what it does not report."""

    phase: str | None = None  # prefill, decode, mixed; verify or draft of speculative decoding
    batch: int | None = None  # requests
    padded: int | None = None  # batch size of the graph that was replayed
    tokens: int | None = None  # new tokens of all requests
    keys: int | None = None  # of all requests, to which attention looks
    prefill: AttentionSums | None = None
    decode: AttentionSums | None = None
    number: int | None = None  # of numbered steps

    @property
    def context(self) -> int | None:
        """Mean keys of a request: the length of one sequence."""
        return round(self.keys / self.batch) if self.keys is not None and self.batch else None

    @property
    def detail(self) -> int | None:
        """Score of the reported fields: of two annotations of one step, the more detailed one is used.

        None for a step without a request, which is none.
        """
        if self.batch == 0 and not self.tokens:
            return None
        fields = (self.phase, self.batch, self.tokens, self.keys)
        sums = [s for s in (self.prefill, self.decode) if s is not None]
        return sum(v is not None for v in fields) + sum(s.queries_keys is not None for s in sums) * 4


class CaptureAnnotation(Struct, frozen=True):
    """The annotation of a CUDA-graph capture: its batch size, and its mode, such as `full` or `piecewise`."""

    batch: int
    mode: str


MAX_ANNOTATION_CHARS: Final = 400  # no engine writes longer ones
_SUMS: Final = r"\(sq(\d{1,18})sk(\d{1,18})sqsq(\d{1,18})sqsk(\d{1,18})\)"
_INT: Final = r"(\d{1,15})"


def _infer_phase(prompts: int, decoding: int) -> str | None:
    if prompts and decoding:
        return "mixed"
    return "prefill" if prompts else "decode" if decoding else None


def _parse_sums(requests: str, values: tuple[str, ...]) -> AttentionSums:
    queries, keys, squared, products = (int(v) for v in values)
    return AttentionSums(int(requests), queries, keys, squared, products)


def _sum_if_complete(values: list[int | None]) -> int | None:
    """Sum values; None if one of them is missing."""
    present = [v for v in values if v is not None]
    return sum(present) if len(present) == len(values) else None


def _build_step(tokens: int | None, prefill: AttentionSums, decode: AttentionSums) -> StepAnnotation:
    both = [s for s in (prefill, decode) if s.requests]
    return StepAnnotation(
        phase=_infer_phase(prefill.requests, decode.requests),
        batch=prefill.requests + decode.requests,
        tokens=_sum_if_complete([s.queries for s in both]) if tokens is None else tokens,
        keys=_sum_if_complete([s.keys for s in both]) if both else None,
        prefill=prefill if prefill.requests else None,
        decode=decode if decode.requests else None,
    )


def _parse_vllm_detailed(match: re.Match[str]) -> StepAnnotation:
    g = match.groups()
    return _build_step(None, _parse_sums(g[1], g[2:6]), _parse_sums(g[6], g[7:11]))


def _parse_vllm(match: re.Match[str]) -> StepAnnotation:
    context, context_tokens, generation, generation_tokens = map(int, match.groups())
    prefill, decode = AttentionSums(context, context_tokens), AttentionSums(generation, generation_tokens)
    return _build_step(None, prefill, decode)


_SGLANG_PHASES: Final = {
    "DECODE": "decode", "EXTEND": "prefill", "SPLIT_PREFILL": "prefill", "MIXED": "mixed", "VERIFY": "verify",
    "DRAFT": "draft",
}  # fmt: skip
_SGLANG_WORDS: Final = "|".join([*_SGLANG_PHASES, "IDLE"])
_PAIR: Final = re.compile(r"([a-z_]+)=(\d{1,18})(?:/(\d{1,9}))?(?=\s|$)")


def _parse_sglang(match: re.Match[str]) -> StepAnnotation:
    if match[1] == "IDLE":
        return StepAnnotation(batch=0)
    values = {key: int(value) for key, value, _ in _PAIR.findall(match[2])}
    batch = values.get("bs")
    phase = _SGLANG_PHASES.get(match[1])
    prefill = _select_prefixed_sums(values, "c", batch if phase == "prefill" else 0)
    decode = _select_prefixed_sums(values, "g", batch if phase == "decode" else 0)
    tokens = values.get("toks")
    if phase == "prefill" and prefill.queries is None and tokens is not None:
        prefill = AttentionSums(prefill.requests, tokens)
    if tokens is None and phase == "decode":
        tokens = decode.queries if decode.queries is not None else batch
    step = _build_step(tokens, prefill, decode)
    return replace(step, phase=phase, batch=batch, tokens=step.tokens or tokens)


def _select_prefixed_sums(values: Mapping[str, int], letter: str, requests: int | None) -> AttentionSums:
    """Select the sums whose keys begin with `c_` (context) or `g_` (generation)."""
    sums = (values.get(f"{letter}_{key}") for key in ("sq", "sk", "sqsq", "sqsk"))
    return AttentionSums(values.get(letter, requests or 0), *sums)


_LIST: Final = re.compile(r"ctx=\[([\d, ]*)\]")


def _parse_atom(match: re.Match[str]) -> StepAnnotation:
    phase, body = match[1], match[2]
    pairs = {key: (int(value), padded) for key, value, padded in _PAIR.findall(_LIST.sub("", body))}
    values = {key: value for key, (value, _) in pairs.items()}
    batch, padded = pairs.get("bs", (None, ""))
    lengths = _LIST.search(body)
    keys = values.get("sk")
    if lengths and keys is None:
        keys = sum(int(n) for n in lengths[1].split(",") if n.strip())
    sums = AttentionSums(batch or 0, values.get("tok"), keys, values.get("sqsq"), values.get("sqsk"))
    return StepAnnotation(
        phase, batch, int(padded) if padded else None, values.get("tok"), keys,
        sums if phase == "prefill" else None, sums if phase == "decode" else None,
    )  # fmt: skip


def _parse_step_number(match: re.Match[str]) -> StepAnnotation:
    return StepAnnotation(number=int(match[1]))


AnnotationParser = Callable[[re.Match[str]], StepAnnotation]

# (engine, pattern of the complete annotation, parser); the first match decides
GRAMMARS: Final[tuple[tuple[str, re.Pattern[str], AnnotationParser], ...]] = (
    ("vllm-detailed",
     re.compile(rf"execute_{_INT}_context_{_INT}{_SUMS}_generation_{_INT}{_SUMS}"), _parse_vllm_detailed),
    ("vllm", re.compile(rf"execute_context_{_INT}\({_INT}\)_generation_{_INT}\({_INT}\)"), _parse_vllm),
    ("sglang", re.compile(rf"step\[({_SGLANG_WORDS})((?: [a-z_]+=\d{{1,18}})*)\]"), _parse_sglang),
    ("atom", re.compile(r"(prefill|decode|mixed)\[([^\]]*(?:\][^\]]*)?)\]"), _parse_atom),
    ("diffusion", re.compile(rf"execute_diffusion_{_INT}_\d{{1,6}}x\d{{1,6}}"),
     lambda match: StepAnnotation(batch=int(match[1]))),
    ("profiler", re.compile(rf"ProfilerStep#?\s*{_INT}"), _parse_step_number),
    ("numbered",
     re.compile(rf"(?:\w*[_ ])?(?:step|iteration|iter)[_ #:]*{_INT}", re.IGNORECASE), _parse_step_number),
)  # fmt: skip

_CAPTURE: Final = re.compile(rf"capture_{_INT}_([A-Za-z]+)")


@lru_cache(maxsize=1 << 14)
def parse_step_annotation(text: str) -> StepAnnotation | None:
    """Parse the annotation of a step; None for text that no engine writes."""
    if len(text) > MAX_ANNOTATION_CHARS:
        return None
    for _, pattern, parse in GRAMMARS:
        if match := pattern.fullmatch(text):
            return parse(match)
    return None


def parse_capture_annotation(text: str) -> CaptureAnnotation | None:
    """Parse the annotation of a graph capture, such as `capture_8_full`; None for other text."""
    match = _CAPTURE.fullmatch(text) if len(text) <= MAX_ANNOTATION_CHARS else None
    return CaptureAnnotation(int(match[1]), match[2].lower()) if match else None
