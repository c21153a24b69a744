"""Find in what the work of two runs differs: what a step computes, and how it is computed.

What a source reports goes first: sequences, context and tokens of its steps, and its metadata. A trace of
operators reports shapes: a product of weights has a row for each token of its step, attention has sequences
and context. A step that computes something else takes another time, which is no verdict on the code.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.selection import list_phases, list_ranks
from tracetui.compare import params
from tracetui.compare.evidence.cpu_contention import measure_used_cores
from tracetui.compare.pairing.run_work import (
    RECOMPUTED,
    count_launches_per_step,
    count_numbers,
    count_products,
    count_products_per_step,
    count_program_inputs,
    count_work_by_step,
    count_xla_operations,
    describe_arguments,
    describe_cache,
    describe_range,
    find_experts,
    find_input,
    find_largest_image,
    find_other_weights,
    format_means,
    have_equal_shares,
    join_examples,
    list_number_formats,
    list_prompts,
    list_queries,
    list_weights,
    measure_product_flops,
    read_rows,
    sum_kinds,
)
from tracetui.compare.pairing.step_times import (
    STEP_SIZES,
    align_steps,
    align_timed_steps,
    find_other_operands,
    list_operands,
    read_sources,
    sum_tokens,
)

UNEQUAL_WORK: Final = "not the same work"
_TOKENS: Final = "tokens per step"
_PROMPT: Final = "prompt"
_PRODUCTS: Final = "products per step"
_PART: Final = "batch of each pass"
_CACHE: Final = "cache that attention reads"
_FUNCTIONS: Final = "jitted functions"
_GRADIENT_PHASES: Final = ("backward", "optimizer")  # whose products have other operands than the model's
_SIZE_NAMES: Final = {("context", "prefill"): _PROMPT, ("tokens", None): _TOKENS}
# Metadata that say how much a step computes, and how
_MODEL_SIZES: Final = ("layers", "d_model", "parameters")
_SETTINGS: Final = (
    "dtype", "autocast", "attention", "kv_cache", "quant", "compiled", "autograd", "train mode", RECOMPUTED,
    "optimizer", "data loader", "memory format", "speculation", "mode", "path", "packing", "threads",
    "device", "torch", "transformers", "vllm", "python", _FUNCTIONS, "XLA operations",
    "donated inputs", "profiler options", "inserted casts", "n_ctx", "n_batch", "n_ubatch",
)  # fmt: skip
_DTYPES: Final = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}  # as rows call them


@dataclass(frozen=True)
class WorkDifference:
    """In what two runs differ; `phase` None is the whole run."""

    what: str  # batch, context, dtype …
    a: str
    b: str
    phase: str | None = None
    is_work: bool = False  # a step computes something else, not the same in another way

    def __str__(self) -> str:
        """Describe it: `prefill prompt 48 and 128`."""
        return f"{f'{self.phase} ' if self.phase else ''}{self.what} {self.a} and {self.b}"

    def is_about(self, phase: str | None) -> bool:
        """True if it is about the steps of this phase."""
        return self.phase in (None, phase)


def find_work_differences(a: Run, b: Run, align: str) -> tuple[WorkDifference, ...]:
    """Find what differs, first what a step computes, then how."""
    shared = [p for p in list_phases(a) if p in list_phases(b)]
    operands = [*_compare_operands(a, b, align)]
    works = _prefer_operands(_find_unequal_work(a, b, shared, align), operands)
    if not any(work.is_work or work.what == _PRODUCTS for work in works):
        works += operands or [*_compare_experts(a, b)] or _compare_product_work(a, b, align)
    others = (*_compare_prompts(a, b, works), *_compare_ranks(a, b), *_compare_settings(a, b))
    differences = (*_join_phases(works, len(shared)), *others)
    return differences or tuple(_compare_launches(a, b))


def _prefer_operands(works: list[WorkDifference], operands: Sequence[WorkDifference]) -> list[WorkDifference]:
    """Return a batch by operands in place of sizes that may be anything that products have a row for."""
    if not operands:
        return works
    others = [work for work in works if work.what not in ("batch", _TOKENS)]
    return [*operands, *others] if operands[0].what == "batch" else others


def _find_unequal_work(a: Run, b: Run, phases: Sequence[str], align: str) -> list[WorkDifference]:
    """Find the sizes of models and of the steps of each phase in which the runs differ."""
    drafts = [*_compare_speculation(a, b)]
    if not phases or "decode" in phases:
        drafts += _compare_queries(a, b, "decode" if phases else None, align)
    is_other_way = read_rows(a).get("attention") != read_rows(b).get("attention")  # with other shapes
    left_out = {_TOKENS: bool(drafts), _CACHE: is_other_way}
    sizes = [w for w in _compare_phases(a, b, phases, align) if not left_out.get(w.what)]
    models = [*_compare_models(a, b, has_drafts=bool(drafts))]
    if any(w.what == _PART for w in sizes):  # which runs all products more often
        models = [replace(w, is_work=False) for w in models if not w.what.startswith("layers")]
    return [*models, *drafts, *sizes]


def _compare_phases(a: Run, b: Run, phases: Sequence[str], align: str) -> list[WorkDifference]:
    """Find the sizes of steps that differ; phases that follow from another one have its difference."""
    sections: Sequence[str | None] = [p for p in phases if p not in _GRADIENT_PHASES] or [None]
    sizes = [w for phase in sections for w in _compare_steps(a, b, phase, align)]
    if "backward" in phases:
        return [_adjust_parts(replace(work, phase=None), a, b) for work in sizes]
    if all(run.has("context") for run in (a, b)):
        return sizes
    return [_spread_prompt(work, sizes) for work in sizes]


def _adjust_parts(work: WorkDifference, a: Run, b: Run) -> WorkDifference:
    """Take a smaller batch with as many times more products as the same work in parts: gradients add up."""
    if work.what != "batch":
        return work
    products = [count_products_per_step(run) for run in (a, b)]
    sequences = [n * int(text.replace(",", "")) for n, text in zip(products, (work.a, work.b), strict=True)]
    is_equal = all(products) and abs(sequences[0] / sequences[1] - 1) < params.NEGLIGIBLE
    return replace(work, what=_PART, is_work=False) if is_equal else work


def _spread_prompt(work: WorkDifference, sizes: Sequence[WorkDifference]) -> WorkDifference:
    """Let other prompts be other work of the decode behind them, whose context is unknown."""
    is_prompt = work.phase == "prefill" and work.what in (_PROMPT, _TOKENS)
    if not is_prompt or any(size.phase in (None, "decode") for size in sizes):
        return work
    return replace(work, what=f"prefill {work.what}", phase=None)


def describe_differences(works: Sequence[WorkDifference]) -> list[str]:
    """Describe in up to two lines what differs: the work of a step, and the rest."""
    unequal, others = ([str(w) for w in works if w.is_work == is_work] for is_work in (True, False))
    named = ((UNEQUAL_WORK, unequal), ("what differs", others))
    return [f"{lead}: {'; '.join(words)}" for lead, words in named if words]


def _join_phases(works: Sequence[WorkDifference], phases: int) -> Iterator[WorkDifference]:
    """Yield differences that all phases share once."""
    counts = Counter((w.what, w.a, w.b) for w in works)
    for work in dict.fromkeys(works):
        if work.phase and counts[work.what, work.a, work.b] == phases:
            if work == next(w for w in works if (w.what, w.a, w.b) == (work.what, work.a, work.b)):
                yield replace(work, phase=None)
        else:
            yield work


def _compare_models(a: Run, b: Run, *, has_drafts: bool) -> Iterator[WorkDifference]:
    """Yield other sizes of the model; a quantised model has fewer parameters that can be counted.

    With drafts, a step has the layers of two models, and some of them several times: they are not counted.
    """
    keys = _MODEL_SIZES if a.meta.get("quant") == b.meta.get("quant") else _MODEL_SIZES[:2]
    for key in keys:
        x, y = (run.meta.get(key) for run in (a, b))
        if isinstance(x, int) and isinstance(y, int) and x != y:
            yield WorkDifference(key, f"{x:,}", f"{y:,}", is_work=True)
            return
    if "layers" not in {*a.meta, *b.meta} and not has_drafts:
        comparisons = (_compare_layers, _compare_products, _compare_loops, _compare_program_inputs)
        yield from islice(chain.from_iterable(compare(a, b) for compare in comparisons), 1)


def _compare_speculation(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield that only one run verifies drafts: then its decode steps are not all that produce tokens."""
    x, y = ("yes" if "verify" in list_phases(run) else "no" for run in (a, b))
    if x != y:
        yield WorkDifference("speculation", x, y, is_work=True)


def _compare_layers(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield other numbers of layers: those of rows, without steps in all, else those that repeat."""
    x, y = (run.events["layer"].drop_nulls().n_unique() if run.has("layer") else 0 for run in (a, b))
    what = "layers" if a.has("step") and b.has("step") else "layers in all"
    if not (x and y):
        (x, y), what = _count_repeats(a, b), "layers"
    if x != y:
        yield WorkDifference(what, str(x), str(y), is_work=True)


def _count_repeats(a: Run, b: Run) -> tuple[int, int]:
    """Count how often what repeats in a pass is there, for kernels without layers; 0 if nothing convinces.

    Both runs compute some product equally often, such as the head. All other products, and attention, must be
    one multiple of those of the other run, as another kind of work is: a product computed twice is no layer.
    """
    counts = _compare_counts(a, b)
    shared = counts.filter(pl.col("is_product") & (pl.col("a") == pl.col("b")))
    x, y = _find_multiples(counts)
    passes = 1 if a.has("step") or shared.is_empty() else math.gcd(*shared["a"])
    return (x // passes, y // passes) if shared.height and x % passes == 0 else (0, 0)


def _find_multiples(counts: pl.DataFrame) -> tuple[int, int]:
    """Find of what all products whose number differs, which are most, and other work too are multiples.

    Else 0, also if attention is none of them: a feed-forward that is computed again is no layer.
    """
    changed = counts.filter(pl.col("a") != pl.col("b"))
    products, others = changed.filter("is_product"), counts.filter("is_product", pl.col("a") == pl.col("b"))
    if others["a"].sum() >= products["a"].sum() or "attention" in others["kind"]:
        return 0, 0
    x, y = (math.gcd(*products[side]) for side in ("a", "b"))
    multiples = changed.filter(pl.col("a") * y == pl.col("b") * x)
    are_all = multiples["is_product"].sum() == products.height and multiples.height > 1
    return (x, y) if products.height and are_all else (0, 0)


def _compare_counts(a: Run, b: Run) -> pl.DataFrame:
    """Tabulate how often work of each kind is in a step of both runs, without steps in all: kind, a, b.

    Empty if the runs have other kinds of products, or steps that cannot be alike.
    """
    x, y = count_work_by_step(a), count_work_by_step(b)
    table = x.join(y, on=("kind", "is_product"), how="full", coalesce=True, suffix="_b")
    table = table.rename({"count": "a", "count_b": "b"})
    has_equal_kinds = not table.filter("is_product").select(pl.sum_horizontal(pl.all().null_count())).item()
    return table.drop_nulls() if has_equal_kinds and a.has("step") == b.has("step") else table.clear()


def _compare_products(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield other sizes of the weights, if both runs have as many products, else other numbers of products.

    One product more often is another way to compute the same; everything more often is other work, and so are
    totals of runs without steps.
    """
    x, y = count_products(a), count_products(b)
    if x and y and have_equal_shares(x, y) and not x.keys() & y.keys():
        before, after = (f"{n}×{k}" for n, k in (max(x), max(y)))
        yield WorkDifference("weights of products", before, after, is_work=True)
    elif others := find_other_weights(x, y):
        yield WorkDifference("weights of products", others[0], others[1], is_work=True)
    counts = _compare_counts(a, b)
    sums = counts.filter(pl.col("is_product") & (pl.col("kind") != "attention"))[["a", "b"]].sum()
    before, after = (f"{n or 0:,}" for n in sums.row(0))
    if before != after:
        what = _PRODUCTS if a.has("step") else "products in all"
        yield WorkDifference(what, before, after, is_work=not a.has("step") or any(_find_multiples(counts)))


def _compare_loops(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield that a loop of XLA has other numbers of passes: those of most operations that changed."""
    x, y = (count_xla_operations(run) for run in (a, b))
    changes = Counter((x[name], y[name]) for name in x.keys() & y.keys() if x[name] != y[name])
    if x.keys() != y.keys():
        yield from _compare_kinds(sum_kinds(x), sum_kinds(y))
    elif changes:
        (before, after), count = changes.most_common(1)[0]
        if 2 * count > changes.total():
            yield WorkDifference("passes of a loop", f"{before:,}", f"{after:,}", is_work=True)


def _compare_kinds(x: Counter[str], y: Counter[str]) -> Iterator[WorkDifference]:
    """Yield that several kinds of operations run more often, all in one ratio: layers without a loop."""
    changed = [(x[kind], y[kind]) for kind in x if x[kind] != y[kind]]
    if x.keys() == y.keys() and len(changed) > 1:
        before, after = (math.gcd(*side) for side in zip(*changed, strict=True))
        if all(m * after == n * before for m, n in changed):
            yield WorkDifference("repeats of all operations", f"{before:,}", f"{after:,}", is_work=True)


def _compare_program_inputs(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield other sizes of the inputs of XLA's program, weights among them, if they are as many."""
    x, y = (count_program_inputs(run) for run in (a, b))
    are_same = read_rows(a).get(_FUNCTIONS) == read_rows(b).get(_FUNCTIONS)  # others are other programs
    if x != y and x.total() == y.total() and are_same:
        before, after = (max(only, key=count_numbers) for only in (x - y, y - x))
        yield WorkDifference("inputs of the program", before, after, is_work=True)


def _compare_launches(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield which kernels of both runs run more often in each step of one of them, those of most launches."""
    x, y = count_launches_per_step(a), count_launches_per_step(b)
    names_by_change: dict[tuple[int, int], list[str]] = {}
    for name in sorted(x.keys() & y.keys(), key=lambda name: (-abs(x[name] - y[name]), name)):
        names_by_change.setdefault((x[name], y[name]), []).append(name.removeprefix("aten::"))
    changes = ((pair, names) for pair, names in names_by_change.items() if pair[0] != pair[1])
    for (before, after), names in islice(changes, params.MAX_EXAMPLES):
        what = f"launches per step of {join_examples(names)}"
        yield WorkDifference(what, f"{before:,}", f"{after:,}")


def _compare_operands(a: Run, b: Run, align: str) -> Iterator[WorkDifference]:
    """Yield other sizes of what the nodes of one graph get."""
    steps = align_timed_steps((a, b), None, align).sides
    x, y = (list_operands(run, side["step"]) for run, side in zip((a, b), steps, strict=True))
    if difference := find_other_operands(x, y):
        yield WorkDifference(*difference, is_work=True)


def _compare_experts(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield that another number of experts computes each token."""
    x, y = find_experts(a), find_experts(b)
    if x and y and x != y:
        yield WorkDifference("experts per token", x, y, is_work=True)


def _compare_product_work(a: Run, b: Run, align: str) -> Iterator[WorkDifference]:
    """Yield that the same weights compute another amount: larger images, or more experts for each token.

    Not of compiled or quantised products of one run only, nor beside another attention.
    """
    ways = ("compiled", "quant", "attention", RECOMPUTED)
    is_same_way = all(read_rows(a).get(key) == read_rows(b).get(key) for key in ways)
    steps = align_steps((a, b), None, align).sides
    x, y = (measure_product_flops(run, side["step"]) for run, side in zip((a, b), steps, strict=True))
    if not (x and y and is_same_way) or max(x, y) < params.STEP_SIZE_RATIO * min(x, y):
        return
    if list_weights(a) == list_weights(b):
        before, after = map(find_largest_image, (a, b))
        if before and after and before != after:
            yield WorkDifference("images", before, after, is_work=True)
        else:
            before, after = (f"{units.format_rate(flops)}FLOP" for flops in (x, y))
            yield WorkDifference("work of products", before, after, is_work=True)


def _compare_prompts(a: Run, b: Run, works: Sequence[WorkDifference]) -> Iterator[WorkDifference]:
    """Yield other prompts of traces without phases, whose other steps compute the same."""
    x, y = ([] if list_phases(run) else list_prompts(run) for run in (a, b))
    if x and y and x != y and not works:
        yield WorkDifference(_PROMPT, describe_range(x), describe_range(y))


def _compare_ranks(a: Run, b: Run) -> Iterator[WorkDifference]:
    x, y = (max(1, len(list_ranks(run))) for run in (a, b))
    if x != y:
        yield WorkDifference("ranks", str(x), str(y))


def _compare_steps(a: Run, b: Run, phase: str | None, align: str) -> Iterator[WorkDifference]:
    """Yield the sizes in which the compared steps of a phase differ: as reported, else by their shapes."""
    aligned = align_timed_steps((a, b), phase, align)
    sides = list(zip((a, b), aligned.sides, strict=True))
    sources = read_sources(sides, phase)
    is_by_context = "context" in aligned.how
    tokens, tokens_b = (sum_tokens(run, phase) for run in (a, b))
    is_cut = phase == "prefill" and 0 < tokens == tokens_b  # the same prompts in other parts
    for key in ("batch", "tokens") if is_by_context else STEP_SIZES:
        x, y = next((pair for pair in _iter_sources(key, *sources) if all(pair)), ([], []))
        difference = _compare_sizes(key, x, y, phase)
        if difference is None:
            continue
        difference = replace(difference, is_work=difference.is_work and not is_cut)
        if key == "batch":
            yield _name_beams(difference, sources[0])
            return  # the tokens of a step follow
        yield _adjust_size(difference, has_steps=a.has("step") or b.has("step"), align=align)
        if (key, phase) == ("context", "prefill"):
            break  # its tokens follow
    yield from _compare_inputs(sides, phase)


def _adjust_size(difference: WorkDifference, *, has_steps: bool, align: str) -> WorkDifference:
    """Take a context that is asked for as no other work, and tokens of no step as rows, maybe of images."""
    if difference.what in ("context", _PROMPT) and align != "context":
        return replace(difference, is_work=False)
    is_of_steps = has_steps or difference.what != _TOKENS
    return difference if is_of_steps else replace(difference, what="rows of products")


def _compare_queries(a: Run, b: Run, phase: str | None, align: str) -> Iterator[WorkDifference]:
    """Yield that attention reads a cache with several new tokens, as for drafts, in one run, or others."""
    aligned = align_steps((a, b), phase, align)
    x, y = (list_queries(run, side["step"]) for run, side in zip((a, b), aligned.sides, strict=True))
    is_other_draft = len(x) == len(y) == 2 and x[0] == y[0] == 1 and x != y
    if x and y and ((len(x) == 1) != (len(y) == 1) or is_other_draft):
        before, after = describe_range(x), describe_range(y)
        yield WorkDifference(_TOKENS, before, after, phase, is_work=True)


def _name_beams(batch: WorkDifference, reported: Sequence[dict[str, list[int]]]) -> WorkDifference:
    """Name beams, candidates for one token, if batches differ and the tokens of their steps do not."""
    sizes = [{*zip(side.get("batch", ()), side.get("tokens", ()), strict=False)} for side in reported]
    if batch.phase in ("prefill", "verify") or any(len(each) != 1 for each in sizes):
        return batch
    ((x, tokens),), ((y, tokens_b),) = sizes
    if not tokens or tokens != tokens_b or x % tokens or y % tokens:
        return batch
    return replace(batch, what="beams", a=f"{x // tokens:,}", b=f"{y // tokens:,}")


def _iter_sources(key: str, *sources: list[dict[str, list[int]]]) -> Iterator[tuple[list[int], list[int]]]:
    for a, b in sources:
        yield a.get(key, []), b.get(key, [])


def _compare_sizes(key: str, x: list[int], y: list[int], phase: str | None) -> WorkDifference | None:
    """Compare one size over the steps of both runs; None if it is the same, or unknown.

    Constant sizes must be equal. Those that vary, as requests come and go, must have averages that are alike.
    """
    if not x or not y or sorted(x) == sorted(y):
        return None
    is_constant, is_constant_b = ({*side} == {side[0]} for side in (x, y))
    if key == "context" and is_constant != is_constant_b:
        a, b = (describe_range(sorted(side)) for side in (x, y))
        return WorkDifference(_CACHE, a, b, phase)  # one of a fixed size does not grow
    means = sum(x) / len(x), sum(y) / len(y)
    are_constant = is_constant and is_constant_b
    if not are_constant and max(means) < params.STEP_SIZE_RATIO * min(means):
        return None
    what = _SIZE_NAMES.get((key, phase), _SIZE_NAMES.get((key, None), key))
    a, b = format_means(means)
    return None if a == b else WorkDifference(what, a, b, phase, is_work=True)


def _compare_inputs(sides: Sequence[tuple[Run, pl.DataFrame]], phase: str | None) -> Iterator[WorkDifference]:
    """Yield other inputs of the steps, and that only one run reads the whole text again for each token."""
    x, y = (find_input(run, side["step"]) for run, side in sides)
    if x and y and x != y and phase not in ("prefill", "verify"):  # their prompt is a size of its own
        yield WorkDifference("input", x, y, phase, is_work=True)
    x, y = (describe_cache(run, side["step"]) for run, side in sides)
    if x and y and (x == "used") != (y == "used") and phase == "decode":
        yield WorkDifference("KV cache", x, y, phase, is_work=True)


def _compare_settings(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield other ways to compute the same, and the words of the command lines that differ."""
    for key in _SETTINGS:
        x, y = (_format_setting(run.meta.get(key)) for run in (a, b))
        if not (x and y):
            x, y = (_format_setting(read_rows(run).get(key)) for run in (a, b))
        if x and y and x != y:
            yield WorkDifference(key, x, y)
    yield from _compare_row_formats(a, b)
    if a.meta.get("threads") == b.meta.get("threads"):
        yield from _compare_used_cores(a, b)
    yield from _compare_commands(a.meta.get("argv"), b.meta.get("argv"))


def _compare_row_formats(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield the operators of another number format beside products of the same: that of most of them."""
    x, y = list_number_formats(a), list_number_formats(b)
    changes = {name: (x[name], y[name]) for name in sorted(x.keys() & y.keys()) if x[name] != y[name]}
    if changes and all(read_rows(a).get(key) == read_rows(b).get(key) for key in ("dtype", "quant")):
        pair = Counter(changes.values()).most_common(1)[0][0]
        names = [name.removeprefix("aten::") for name, each in changes.items() if each == pair]
        yield WorkDifference(f"dtype of {join_examples(names)}", *pair)


def _compare_commands(*commands: Any) -> Iterator[WorkDifference]:
    if all(isinstance(words, list) for words in commands):
        x, y = describe_arguments(*commands)
        if x != y:
            yield WorkDifference("command", x, y)


def _compare_used_cores(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield other numbers of cores in use, where no other program used them: a thread computes, or waits."""
    x, y = map(measure_used_cores, (a, b))
    if x is None or y is None or abs(x - y) < params.MIN_CORES_CHANGE:
        return
    if min(x, y) < params.MOST * max(x, y):  # equal runs of many threads differ by some of a core
        yield WorkDifference("cores used", f"{x:.1f}", f"{y:.1f}")


def _format_setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _DTYPES.get(str(value), str(value)) if isinstance(value, str | int) else ""
