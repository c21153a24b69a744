"""Find in what the work of two runs differs: what a step computes, and how it is computed.

What a source reports goes first: sequences, context and tokens of its steps, and its metadata. A trace of
operators reports shapes: a product of weights has a row for each token of its step, attention has sequences
and context. A step that computes something else takes another time, which is no verdict on the code.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.codes import group_by_packed_key
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import list_phases, list_ranks
from tracetui.compare import params
from tracetui.compare.pairing.step_times import align_steps
from tracetui.look import Look

UNEQUAL_WORK: Final = "not the same work"
_SIZES: Final = ("batch", "context", "tokens")  # of a step, as its source reports them
_TOKENS: Final = "tokens per step"
_SIZE_NAMES: Final = {("context", "prefill"): "prompt", ("tokens", None): _TOKENS}
# Metadata that say how much a step computes, and how
_MODEL_SIZES: Final = ("layers", "d_model", "parameters")
_SETTINGS: Final = (
    "dtype", "attention", "kv_cache", "quant", "compiled", "speculation", "mode", "path", "packing",
    "threads", "device", "torch", "transformers", "vllm", "python", "jitted functions", "XLA operations",
)  # fmt: skip
_DTYPES: Final = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}  # as rows call them
XLA: Final = ("XLA profiler", "JAX profiler")
_COMPILED_NAMES: Final = r"CompiledFxGraph|Torch-Compiled Region|^triton_"


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
    shared: list[str | None] = [p for p in list_phases(a) if p in list_phases(b)]
    drafts = [*_compare_speculation(a, b)]
    if not shared or "decode" in shared:
        drafts += _compare_queries(a, b, "decode" if shared else None, align)
    works = [*_compare_models(a, b, has_drafts=bool(drafts)), *drafts]
    for phase in shared or [None]:
        steps = _compare_steps(a, b, phase, align)
        works += [w for w in steps if not (drafts and w.what == _TOKENS)]
    return (*_join_phases(works, len(shared)), *_compare_ranks(a, b), *_compare_settings(a, b))


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
        yield from islice(chain(_compare_layers(a, b), _compare_products(a, b)), 1)


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
    """Find of what all products whose number differs are multiples in a and b, and other work too; else 0."""
    changed = counts.filter(pl.col("a") != pl.col("b"))
    products = changed.filter("is_product")
    x, y = (math.gcd(*products[side]) for side in ("a", "b"))
    multiples = changed.filter(pl.col("a") * y == pl.col("b") * x)
    are_all = multiples["is_product"].sum() == products.height and multiples.height > 1
    return (x, y) if products.height and are_all else (0, 0)


def _compare_counts(a: Run, b: Run) -> pl.DataFrame:
    """Tabulate how often work of each kind is in a step of both runs, without steps in all: kind, a, b.

    Empty if the runs have other kinds of products, or steps that cannot be alike.
    """
    x, y = _count_by_step(a), _count_by_step(b)
    table = x.join(y, on=("kind", "is_product"), how="full", coalesce=True, suffix="_b")
    table = table.rename({"count": "a", "count_b": "b"})
    has_equal_kinds = not table.filter("is_product").select(pl.sum_horizontal(pl.all().null_count())).item()
    return table.drop_nulls() if has_equal_kinds and a.has("step") == b.has("step") else table.clear()


def _count_by_step(run: Run) -> pl.DataFrame:
    """Count products by their weights, and other work by category, in a step; without steps in all.

    Empty if the steps cannot be alike.
    """
    table, category = _tabulate_shapes(run), pl.col("category")
    if table.is_empty():
        return pl.DataFrame(schema={"kind": pl.String, "is_product": pl.Boolean, "count": pl.Int64})
    weight = (
        pl.when(_is_product()).then(pl.format("{}×{}", "size_n", "size_k"))
        .when(category == "conv").then(pl.col("shape").str.extract(r"\* (.+)$"))
    )  # fmt: skip
    kind, is_product = pl.coalesce(weight, category), weight.is_not_null() | (category == "attention")
    counts = table.group_by(kind=kind, is_product=is_product).agg(count=pl.col("len").sum().cast(pl.Int64))
    steps = max(1, _count_kernel_steps(run)) if run.has("step") else 1
    is_constant = (counts.filter("is_product")["count"] % steps == 0).all()
    return counts.with_columns(pl.col("count") // steps) if is_constant else counts.clear()


def _count_kernel_steps(run: Run) -> int:
    kernels = run.events.lazy().filter(pl.col("kind") == "kernel")
    return int(kernels.select(pl.col("step").drop_nulls().n_unique()).collect().item())


def _compare_products(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield other sizes of the weights, if both runs have as many products, else other numbers of products.

    One product more often is another way to compute the same; everything more often is other work, and so are
    totals of runs without steps.
    """
    x, y = _count_products(a), _count_products(b)
    if x and y and _compute_shares(x) == _compute_shares(y) and not x.keys() & y.keys():
        before, after = (f"{n}×{k}" for n, k in (max(x), max(y)))
        yield WorkDifference("weights of products", before, after, is_work=True)
    elif others := _find_other_weights(x, y):
        yield WorkDifference("weights of products", others[0], others[1], is_work=True)
    counts = _compare_counts(a, b)
    sums = counts.filter(pl.col("is_product") & (pl.col("kind") != "attention"))[["a", "b"]].sum()
    before, after = (f"{n or 0:,}" for n in sums.row(0))
    if before != after:
        what = "products per step" if a.has("step") else "products in all"
        yield WorkDifference(what, before, after, is_work=not a.has("step") or any(_find_multiples(counts)))


def _find_other_weights(
    x: Mapping[tuple[int, int], int], y: Mapping[tuple[int, int], int]
) -> tuple[str, ...]:
    """Find the largest weights that are others, as of a head with another vocabulary; none if it is not sure.

    As many products must have the weights of the one run as have those of the other, and more to compute.
    """
    only_x, only_y = ({k: n for k, n in one.items() if k not in other} for one, other in ((x, y), (y, x)))
    if sorted(only_x.values()) != sorted(only_y.values()):
        return ()
    flops = [sum(n * k * count for (n, k), count in only.items()) for only in (only_x, only_y)]
    return tuple("×".join(map(str, max(only))) for only in (only_x, only_y)) if flops[0] != flops[1] else ()


def _count_products(run: Run) -> dict[tuple[int, int], int]:
    """Count the products of weights by the sizes of these."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return {}
    counts = _select_products(table).group_by("size_n", "size_k").agg(pl.col("len").sum())
    return {(n, k): count for n, k, count in counts.iter_rows()}


def _compute_shares(counts: Mapping[tuple[int, int], int]) -> list[float]:
    return sorted(count / max(counts.values()) for count in counts.values())


def _compare_ranks(a: Run, b: Run) -> Iterator[WorkDifference]:
    x, y = (max(1, len(list_ranks(run))) for run in (a, b))
    if x != y:
        yield WorkDifference("ranks", str(x), str(y))


def _compare_steps(a: Run, b: Run, phase: str | None, align: str) -> Iterator[WorkDifference]:
    """Yield the sizes in which the compared steps of a phase differ: as reported, else by their shapes."""
    aligned = align_steps((a, b), phase, align)
    sides = list(zip((a, b), aligned.sides, strict=True))
    reported = [_read_step_sizes(run, side["step"]) for run, side in sides]
    shapes = [_read_shape_sizes(run, phase, side["step"]) for run, side in sides]
    meta = [{"batch": _to_list(run.meta.get("batch"))} for run in (a, b)]
    is_by_context = "context" in aligned.how
    for key in ("batch", "tokens") if is_by_context else _SIZES:
        x, y = next((pair for pair in _iter_sources(key, reported, shapes, meta) if all(pair)), ([], []))
        difference = _compare_sizes(key, x, y, phase)
        if difference is None:
            continue
        if key == "batch":
            yield _name_beams(difference, reported)
            return  # the tokens of a step follow
        is_asked_for = key == "context" and align != "context"
        yield replace(difference, is_work=difference.is_work and not is_asked_for)
    yield from _compare_inputs(sides, phase)


def _compare_queries(a: Run, b: Run, phase: str | None, align: str) -> Iterator[WorkDifference]:
    """Yield that attention has several new tokens after others in steps of one run only, as for drafts."""
    aligned = align_steps((a, b), phase, align)
    x, y = (_list_queries(run, side["step"]) for run, side in zip((a, b), aligned.sides, strict=True))
    if x and y and (len(x) == 1) != (len(y) == 1):
        before, after = _describe_range(x), _describe_range(y)
        yield WorkDifference(_TOKENS, before, after, phase, is_work=True)


def _list_queries(run: Run, steps: pl.Series) -> list[int]:
    """List the numbers of new tokens with which attention reads a cache in these steps."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return []
    reads_cache = (pl.col("category") == "attention") & (pl.col("size_q") < pl.col("size_k"))
    of_steps = table.filter(reads_cache, pl.col("step").is_in(steps.implode()))
    return of_steps["size_q"].unique().sort().to_list()


def _describe_cache(run: Run, steps: pl.Series) -> str:
    """Describe how many tokens steps read that use no cache; empty if they read one token, or do not say."""
    if not (run.has("step") and run.has("shape")):
        return ""
    marks = run.events.filter((pl.col("kind") == "step") & pl.col("step").is_in(steps.implode()))
    shapes = marks["shape"].cast(pl.String)
    read = shapes.str.extract(r"^\d+x(\d{1,9})$").cast(pl.Int64).drop_nulls().sort().to_list()
    return f"none, {_describe_range(read)} tokens read per step" if 0 < len(read) == marks.height else ""


def _describe_range(numbers: Sequence[int]) -> str:
    """Describe the first and the last of sorted numbers; one if they are equal."""
    return "–".join(dict.fromkeys(f"{number:,}" for number in (numbers[0], numbers[-1])))


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


def _to_list(value: object) -> list[int]:
    return [value] if type(value) is int else []


def _compare_sizes(key: str, x: list[int], y: list[int], phase: str | None) -> WorkDifference | None:
    """Compare one size over the steps of both runs; None if it is the same, or unknown.

    Constant sizes must be equal. Those that vary, as requests come and go, must have averages that are alike.
    """
    if not x or not y or sorted(x) == sorted(y):
        return None
    is_constant, is_constant_b = ({*side} == {side[0]} for side in (x, y))
    if key == "context" and is_constant != is_constant_b:
        a, b = (f"{min(side):,}–{max(side):,}" for side in (x, y))
        return WorkDifference("cache that attention reads", a, b, phase)  # one of a fixed size does not grow
    means = sum(x) / len(x), sum(y) / len(y)
    are_constant = is_constant and is_constant_b
    if not are_constant and max(means) < params.STEP_SIZE_RATIO * min(means):
        return None
    what = _SIZE_NAMES.get((key, phase), _SIZE_NAMES.get((key, None), key))
    a, b = _format_means(means)
    return None if a == b else WorkDifference(what, a, b, phase, is_work=True)


def _format_means(means: tuple[float, float]) -> tuple[str, str]:
    digits = 1 if min(means) < 10 and not all(mean == int(mean) for mean in means) else 0
    a, b = (f"{mean:,.{digits}f}" for mean in means)
    return a, b


def _read_step_sizes(run: Run, steps: pl.Series) -> dict[str, list[int]]:
    """Read the sizes of these steps that the run reports for all of them."""
    columns = [c for c in _SIZES if run.has(c)]
    if not run.has("step") or not columns or steps.is_empty():
        return {}
    marks = run.events.lazy().filter((pl.col("kind") == "step") & pl.col("step").is_in(steps.implode()))
    table = marks.group_by("step").agg(pl.col(columns).max()).collect()
    return {c: table[c].to_list() for c in columns if not table[c].null_count()}


def _compare_inputs(sides: Sequence[tuple[Run, pl.DataFrame]], phase: str | None) -> Iterator[WorkDifference]:
    """Yield other inputs of the steps, and that only one run reads the whole text again for each token."""
    x, y = (_find_input(run, side["step"]) for run, side in sides)
    if x and y and x != y and phase not in ("prefill", "verify"):  # their prompt is a size of its own
        yield WorkDifference("input", x, y, phase, is_work=True)
    x, y = (_describe_cache(run, side["step"]) for run, side in sides)
    if x != y and "" in (x, y) and phase == "decode":
        yield WorkDifference("KV cache", x or "used", y or "used", phase, is_work=True)


def _find_input(run: Run, steps: pl.Series) -> str:
    """Find the sizes of the input that the run reports for these steps; empty if it has several, or none."""
    if not (run.has("step") and run.has("shape")):
        return ""
    marks = run.events.filter((pl.col("kind") == "step") & pl.col("step").is_in(steps.implode()))
    shapes = marks["shape"].cast(pl.String).drop_nulls().unique()
    return str(shapes[0]) if shapes.len() == 1 else ""


@cache_per_run
def _tabulate_shapes(run: Run) -> pl.DataFrame:
    """Tabulate the shapes of all rows with their sizes, and how often each occurs; empty without shapes.

    Only attention, also as products of its own, is tabulated by step: its context grows.
    """
    if not (run.has("shape") and run.has("category")):
        return pl.DataFrame()
    kernels = selection.select_timed(run, Look()).filter(pl.col("shape").is_not_null())
    is_attention = pl.col("category") == "attention"
    if run.has("op"):
        is_attention |= pl.col("op") == "attn.core"
    step = pl.when(is_attention).then("step" if run.has("step") else None).cast(pl.Int64)
    labels = ("phase", "category", "op", "shape", "dtype")
    columns = selection.select_existing(run, labels)
    counts = group_by_packed_key(kernels.select(*columns, step=step), (*columns, "step"), [pl.len()])
    texts = (pl.col(c) if c in columns else pl.lit(None).alias(c) for c in labels)
    rows = counts.select(*(text.cast(pl.String) for text in texts), "step", "len")
    numbers = (
        pl.col("shape").str.extract(rf"\b{n}=(\d+)").cast(pl.Int64).alias(f"size_{n}") for n in "bmnkq"
    )
    return rows.with_columns(*numbers)


def _read_shape_sizes(run: Run, phase: str | None, steps: pl.Series) -> dict[str, list[int]]:
    """Read sequences and context from the shapes of attention, tokens from those of products of weights."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return {}
    of_run, table = table, table.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    attention = table.filter((pl.col("category") == "attention") & pl.col("size_q").is_not_null())
    in_steps = attention.filter(pl.col("step").is_in(steps.implode()))
    products = _select_products(table)
    sizes = {"batch": _list_sizes(attention, "size_b")[:1]}
    sizes["context"] = _list_sizes(in_steps if in_steps.height else attention, "size_k")
    if attention.is_empty():
        sizes["context"] = _list_score_contexts(of_run, phase, steps)
    if products.height:
        by_tokens = products.group_by("size_m").agg(pl.col("len").sum()).sort("len", "size_m")
        sizes["tokens"] = [by_tokens["size_m"][-1]]
    return {key: values for key, values in sizes.items() if values}


def _list_score_contexts(table: pl.DataFrame, phase: str | None, steps: pl.Series) -> list[int]:
    """List the contexts of attention that is two products: n of the one whose k is the head size.

    The head size is in all products of all steps; unknown if another size is as frequent.
    """
    products = table.filter((pl.col("category") == "matmul") & (pl.col("op") == "attn.core"))
    head = pl.concat([products["size_n"], products["size_k"]]).drop_nulls().mode()
    in_steps = pl.col("phase").eq_missing(pl.lit(phase, pl.String)) & pl.col("step").is_in(steps.implode())
    scores = (
        products.filter(in_steps & (pl.col("size_k") == head[0])) if head.len() == 1 else products.clear()
    )
    return _list_sizes(scores, "size_n")


def _select_products(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(_is_product())


def _is_product() -> pl.Expr:
    """Whether a row is a product of weights: those of attention have its role, or a batch of their own."""
    is_product = (pl.col("category") == "matmul") & pl.col("size_b").is_null()
    return is_product & pl.col("op").ne_missing("attn.core") & pl.col("size_m").is_not_null()


def _list_sizes(table: pl.DataFrame, column: str) -> list[int]:
    return table.select(pl.col(column).repeat_by("len").explode().drop_nulls())[column].to_list()


def _compare_settings(a: Run, b: Run) -> Iterator[WorkDifference]:
    """Yield other ways to compute the same, and the words of the command lines that differ."""
    for key in _SETTINGS:
        x, y = (_format_setting(run.meta.get(key)) for run in (a, b))
        if not (x and y):
            x, y = (_format_setting(_read_rows(run).get(key)) for run in (a, b))
        if x and y and x != y:
            yield WorkDifference(key, x, y)
    commands = a.meta.get("argv"), b.meta.get("argv")
    if all(isinstance(words, list) for words in commands):
        x, y = _describe_arguments(*commands)
        if x != y:
            yield WorkDifference("command", x, y)


def _format_setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _DTYPES.get(str(value), str(value)) if isinstance(value, str | int) else ""


@cache_per_run
def _read_rows(run: Run) -> dict[str, str | bool]:
    """Read from rows what their source does not state: number format, quantised products, compiled code."""
    settings: dict[str, str | bool] = {}
    products = _tabulate_shapes(run)
    if products.height:
        formats = products.filter(pl.col("category") == "matmul").drop_nulls("dtype")
        counts = formats.group_by("dtype").agg(pl.col("len").sum()).sort("len", "dtype")
        settings |= {"dtype": counts["dtype"][-1]} if counts.height else {}
    if run.meta.get("work") == "operators":  # of a trace of PyTorch, whose operators have known names
        names = run.events["name"].unique().cast(pl.String)
        settings["quant"] = "int8" if names.str.starts_with("quantized::linear").any() else "none"
        settings["compiled"] = bool(names.str.contains(_COMPILED_NAMES).any())
    if run.meta.get("producer") in XLA:
        names = run.events["name"].unique().cast(pl.String)
        functions = names.str.extract(r"^PjitFunction\((.+)\)$").drop_nulls().sort().to_list()
        more = f" and {len(functions) - params.MAX_EXAMPLES} more" * (len(functions) > params.MAX_EXAMPLES)
        settings["jitted functions"] = ", ".join(functions[: params.MAX_EXAMPLES]) + more
        settings["XLA operations"] = f"{len(list_kernel_names(run)):,}"
    return settings


@cache_per_run
def list_kernel_names(run: Run) -> frozenset[str]:
    """List the names of the kernels of a run."""
    return frozenset(run.events.filter(pl.col("kind") == "kernel")["name"].unique().cast(pl.String))


def _describe_arguments(x: Any, y: Any) -> tuple[str, str]:
    """Describe the words that only one of two command lines has, each option with its value."""
    a, b = (Counter(_split_options([str(word) for word in words[1:]])) for words in (x, y))
    limit = params.MAX_NAMED
    words_by_side = (list(chain(*options.elements()))[:limit] for options in (a - b, b - a))
    before, after = (" ".join(words) or "(nothing)" for words in words_by_side)
    return before, after


def _split_options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield options with the value that follows, and other words alone."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        takes_value = word.startswith("-") and "=" not in word and rest and not rest[0].startswith("-")
        yield (word, rest.pop(0)) if takes_value else (word,)
