"""What serving engines write into the annotation of a step: its phase, requests, tokens and attention sums.

Each grammar is a regular expression over the whole annotation; the table below names who writes it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final


@dataclass(frozen=True)
class Sums:
    """Sums over the requests of one kind in a step; None where the annotation does not state one.

    With q new tokens and k keys a request, attention costs in proportion to `q·k`; `q·q` tells
    how much of a prompt's square a causal mask leaves out.
    """

    requests: int
    queries: int | None = None
    keys: int | None = None
    queries_squared: int | None = None
    queries_keys: int | None = None


@dataclass(frozen=True)
class StepAnnotation:
    """What one annotation says of a step.

    `phase` is `prefill`, `decode`, `mixed`, or None for a step of no known kind. `batch` counts the
    requests, `padded` the requests of the graph that was replayed for them, `tokens` the new tokens of all
    requests. `prefill` and `decode` hold the sums of either kind. `number` is set where steps are numbered.
    """

    phase: str | None = None
    batch: int | None = None
    padded: int | None = None
    tokens: int | None = None
    context: int | None = None
    prefill: Sums | None = None
    decode: Sums | None = None
    number: int | None = None

    @property
    def detail(self) -> int:
        """Return how much it says: the more detailed of two annotations of one step is to be believed."""
        stated = (self.phase, self.batch, self.tokens, self.context)
        sums = [s for s in (self.prefill, self.decode) if s is not None]
        return sum(v is not None for v in stated) + sum(s.queries_keys is not None for s in sums) * 4


@dataclass(frozen=True)
class CaptureAnnotation:
    """What the annotation of a graph capture says: the batch it is made for, and how the graph is cut."""

    batch: int
    mode: str


LONGEST: Final = 400  # characters; no engine writes longer annotations
_SUMS: Final = r"\(sq(\d{1,18})sk(\d{1,18})sqsq(\d{1,18})sqsk(\d{1,18})\)"
_INT: Final = r"(\d{1,15})"


def _phase(prompts: int, decoding: int) -> str | None:
    if prompts and decoding:
        return "mixed"
    return "prefill" if prompts else "decode" if decoding else None


def _sums(requests: str, values: tuple[str, ...]) -> Sums:
    queries, keys, squared, products = (int(v) for v in values)
    return Sums(int(requests), queries, keys, squared, products)


def _total(values: list[int | None]) -> int | None:
    """Return the sum, None where one of the values is not stated."""
    stated = [v for v in values if v is not None]
    return sum(stated) if len(stated) == len(values) else None


def _step_of(tokens: int | None, prefill: Sums, decode: Sums) -> StepAnnotation:
    both = [s for s in (prefill, decode) if s.requests]
    return StepAnnotation(
        phase=_phase(prefill.requests, decode.requests),
        batch=prefill.requests + decode.requests,
        tokens=_total([s.queries for s in both]) if tokens is None else tokens,
        context=_total([s.keys for s in both]) if both else None,
        prefill=prefill if prefill.requests else None,
        decode=decode if decode.requests else None,
    )


def _vllm_detailed(found: re.Match[str]) -> StepAnnotation:
    g = found.groups()
    return _step_of(None, _sums(g[1], g[2:6]), _sums(g[6], g[7:11]))


def _vllm_native(found: re.Match[str]) -> StepAnnotation:
    context, context_tokens, generation, generation_tokens = (int(v) for v in found.groups())
    return _step_of(None, Sums(context, context_tokens), Sums(generation, generation_tokens))


_SGLANG_PHASES: Final = {"DECODE": "decode", "EXTEND": "prefill", "MIXED": "mixed"}
_PAIR: Final = re.compile(r"([a-z_]+)=(\d{1,18})(?:/(\d{1,9}))?(?=\s|$)")


def _sglang(found: re.Match[str]) -> StepAnnotation:
    stated = {key: int(value) for key, value, _ in _PAIR.findall(found[2])}
    batch = stated.get("bs")
    phase = _SGLANG_PHASES.get(found[1])
    prefill = _prefixed(stated, "c", batch if phase == "prefill" else 0)
    decode = _prefixed(stated, "g", batch if phase == "decode" else 0)
    if phase == "prefill" and prefill.queries is None and "toks" in stated:
        prefill = Sums(prefill.requests, stated["toks"])
    tokens = stated.get("toks")
    if tokens is None and phase == "decode":
        tokens = decode.queries if decode.queries is not None else batch
    step = _step_of(tokens, prefill, decode)
    return StepAnnotation(
        phase, batch, None, step.tokens if step.tokens else tokens, step.context, step.prefill, step.decode
    )


def _prefixed(stated: Mapping[str, int], letter: str, requests: int | None) -> Sums:
    """Return the sums whose keys begin with `c_` (context) or `g_` (generation)."""
    return Sums(
        stated.get(letter, requests or 0),
        *(stated.get(f"{letter}_{key}") for key in ("sq", "sk", "sqsq", "sqsk")),
    )


_ATOM_PHASES: Final = {"prefill": "prefill", "decode": "decode", "mixed": "mixed"}
_LIST: Final = re.compile(r"ctx=\[([\d, ]*)\]")


def _atom(found: re.Match[str]) -> StepAnnotation:
    phase, body = found[1], found[2]
    pairs = {key: (int(value), padded) for key, value, padded in _PAIR.findall(_LIST.sub("", body))}
    stated = {key: value for key, (value, _) in pairs.items()}
    batch, padded = pairs.get("bs", (None, ""))
    lengths = _LIST.search(body)
    context = stated.get("sk")
    if lengths and context is None:
        context = sum(int(n) for n in lengths[1].split(",") if n.strip())
    sums = Sums(batch or 0, stated.get("tok"), context, stated.get("sqsq"), stated.get("sqsk"))
    return StepAnnotation(
        _ATOM_PHASES[phase], batch, int(padded) if padded else None, stated.get("tok"), context,
        sums if phase == "prefill" else None, sums if phase == "decode" else None,
    )  # fmt: skip


def _numbered(found: re.Match[str]) -> StepAnnotation:
    return StepAnnotation(number=int(found[1]))


def _diffusion(found: re.Match[str]) -> StepAnnotation:
    return StepAnnotation(batch=int(found[1]))


Reader = Callable[[re.Match[str]], StepAnnotation]

# (who writes it, its form, how it is read); the first that fits the whole annotation is the one
GRAMMARS: Final[tuple[tuple[str, re.Pattern[str], Reader], ...]] = (
    ("vllm-detailed",
     re.compile(rf"execute_{_INT}_context_{_INT}{_SUMS}_generation_{_INT}{_SUMS}"), _vllm_detailed),
    ("vllm", re.compile(rf"execute_context_{_INT}\({_INT}\)_generation_{_INT}\({_INT}\)"), _vllm_native),
    ("sglang", re.compile(r"step\[(DECODE|EXTEND|MIXED)((?: [a-z_]+=\d{1,18})*)\]"), _sglang),
    ("atom", re.compile(r"(prefill|decode|mixed)\[([^\]]*(?:\][^\]]*)?)\]"), _atom),
    ("diffusion", re.compile(rf"execute_diffusion_{_INT}_\d{{1,6}}x\d{{1,6}}"), _diffusion),
    ("profiler", re.compile(rf"ProfilerStep#?\s*{_INT}"), _numbered),
    ("numbered", re.compile(rf"(?:\w*[_ ])?(?:step|iteration|iter)[_ #:]*{_INT}", re.IGNORECASE), _numbered),
)  # fmt: skip

_CAPTURE: Final = re.compile(rf"capture_{_INT}_([A-Za-z]+)")


@lru_cache(maxsize=1 << 14)
def read_step(text: str) -> StepAnnotation | None:
    """Return what an annotation says of a step, None where it is no engine's annotation of one."""
    if len(text) > LONGEST:
        return None
    for _, form, read in GRAMMARS:
        found = form.fullmatch(text)
        if found:
            return read(found)
    return None


def read_capture(text: str) -> CaptureAnnotation | None:
    """Return what the annotation of a graph capture says, None where it is none."""
    found = _CAPTURE.fullmatch(text) if len(text) <= LONGEST else None
    return CaptureAnnotation(int(found[1]), found[2].lower()) if found else None
