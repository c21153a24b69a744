"""Read of one run what its steps compute, and how: their sizes, products, inputs, caches and number formats.

What a source reports goes first. A trace of operators reports shapes: a product of weights has a row for each
token of its step, attention has sequences and context.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Final

import polars as pl

from capture.native.schema import COMPILED_PATTERN
from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.codes import group_by_packed_key
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.compare import params
from tracetui.look import Look

XLA: Final = ("XLA profiler", "JAX profiler")
ONNX: Final = "ONNX Runtime"
# Of ONNX: quantised operators, or what puts numbers into that format
_INTEGER_NODES: Final = (
    r"(?:^|[^A-Za-z])(?:\w+Integer\w*|DynamicQuantize\w+|(?:De)?[Qq]uantizeLinear|QLinear\w+|QGemm|QAttention"
    r"|\w+NBits)"
)
_INSERTED_CASTS: Final = r"\bInserted(PrecisionFree)?Cast_"  # of ONNX, around what has no fp16
_FLOATS: Final = ("fp32", "fp16", "bf16", "fp64")
_PROFILER_OPTIONS: Final = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_CORE_PRODUCTS: Final = "products of attention"  # by their role, which may be guessed
RECOMPUTED: Final = "forward computed again"  # in the backward, as activation checkpointing does
# Of a forward: their gradients are operators of other names
_FORWARD_OPERATORS: Final = (
    r"^aten::(native_(layer|batch|group)_norm|_scaled_dot_product_\w+_(for_cpu|attention)|gelu|silu|_softmax|embedding"
    r"|(mkldnn_|cudnn_)?convolution)$"
)
_OPTIMIZER_STEP: Final = r"^Optimizer\.step#(\w+)\.step$"  # ranges of PyTorch
_DATA_LOADER: Final = r"^enumerate\(DataLoader\)#_(\w+)DataLoaderIter\."
# around the way in which it is computed
_ATTENTION_WORDS: Final = r"^aten::_*|scaled_dot_product_|_?attention|_for_cpu$"
_SOFTMAX: Final = "aten::_softmax"
_SOFTMAX_OF_PRODUCTS: Final = "products + softmax"
_COMPILED_NAMES: Final = f"{COMPILED_PATTERN}|^triton_"


def count_work_by_step(run: Run, *, is_constant_needed: bool = True) -> pl.DataFrame:
    """Count products by their weights, and other work by category, in a step; without steps in all.

    Empty if the steps cannot be alike, and that is needed.
    """
    table, category = _tabulate_shapes(run), pl.col("category")
    if table.is_empty():
        return pl.DataFrame(schema={"kind": pl.String, "is_product": pl.Boolean, "count": pl.Int64})
    weight = (
        pl.when(_is_product()).then(pl.format("{}×{}", "size_n", "size_k"))
        .when(category == "conv").then(pl.col("shape").str.extract(r"\* (.+)$"))
    )  # fmt: skip
    is_guess = (category == "matmul") & (pl.col("op") == "attn.core") & pl.col("size_b").is_null()
    role = pl.when(is_guess).then(pl.lit(_CORE_PRODUCTS))
    kind = pl.coalesce(weight, role, category)
    is_product = weight.is_not_null() | role.is_not_null() | (category == "attention")
    counts = table.group_by(kind=kind, is_product=is_product).agg(count=pl.col("len").sum().cast(pl.Int64))
    steps = max(1, _count_kernel_steps(run)) if run.has("step") else 1
    is_constant = (counts.filter("is_product")["count"] % steps == 0).all() or not is_constant_needed
    return counts.with_columns(pl.col("count") // steps) if is_constant else counts.clear()


def _count_kernel_steps(run: Run) -> int:
    kernels = run.events.lazy().filter(pl.col("kind") == "kernel")
    return int(kernels.select(pl.col("step").drop_nulls().n_unique()).collect().item())


def count_products(run: Run) -> dict[tuple[int, int], int]:
    """Count the products of weights by the sizes of these; those of gradients add up over the tokens."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return {}
    products = _select_products(table).filter(pl.col("phase").ne_missing("backward"))
    counts = products.group_by("size_n", "size_k").agg(pl.col("len").sum())
    return {(n, k): count for n, k, count in counts.iter_rows()}


def count_products_per_step(run: Run) -> float:
    """Count the products of weights in the average step, without those of gradients."""
    return sum(count_products(run).values()) / (max(1, _count_kernel_steps(run)) if run.has("step") else 1)


def list_queries(run: Run, steps: pl.Series) -> list[int]:
    """List the numbers of new tokens with which attention reads a cache in these steps."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return []
    reads_cache = (pl.col("category") == "attention") & (pl.col("size_q") < pl.col("size_k"))
    of_steps = table.filter(reads_cache, pl.col("step").is_in(steps.implode()))
    return of_steps["size_q"].unique().sort().to_list()


def describe_cache(run: Run, steps: pl.Series) -> str:
    """Describe the KV cache of these steps: used, or how many tokens they read without one; empty if unknown.

    A recording states the kind of cache, or the tokens that a step reads if these are several: of such a
    recording, whose prompts have theirs, a step without them reads one.
    """
    if not (run.has("step") and run.has("phase")):
        return ""
    marks = run.events.filter(pl.col("kind") == "step")
    marks = marks.select("step", "phase", shape=pl.col("shape") if run.has("shape") else pl.lit(None))
    of_steps = pl.col("step").is_in(steps.implode())
    read = marks.filter(of_steps)["shape"].cast(pl.String).str.extract(r"^\d+x(\d{1,9})$").cast(pl.Int64)
    if 0 < read.count() == read.len():
        return f"none, {describe_range(read.sort().to_list())} tokens read per step"
    has_prompts = marks.filter(pl.col("phase") == "prefill")["shape"].count() > 0
    return "used" if read.count() == 0 and (has_prompts or "kv_cache" in run.meta) else ""


def describe_range(numbers: Sequence[int]) -> str:
    """Describe the first and the last of sorted numbers; one if they are equal."""
    return "–".join(dict.fromkeys(f"{number:,}" for number in (numbers[0], numbers[-1])))


def sum_counts(run: Run, phase: str | None) -> dict[str, float]:
    """Sum the launches of a phase, and the bytes and FLOPs that they report."""
    sums = {column: pl.col(column).sum() for column in ("bytes", "flops") if run.has(column)}
    rows = selection.select_timed(run, Look(phase=phase)).select(count=pl.len(), **sums).collect()
    return {column: float(value) for column, value in rows.row(0, named=True).items()}


def find_input(run: Run, steps: pl.Series) -> str:
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
    return rows.with_columns(_parse_size(n) for n in "bmnkq")


def read_shape_sizes(run: Run, phase: str | None, steps: pl.Series) -> dict[str, list[int]]:
    """Read sequences and context from the shapes of attention, tokens from those of products of weights."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return {}
    of_phase = table.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    attention = of_phase.filter((pl.col("category") == "attention") & pl.col("size_q").is_not_null())
    in_steps = attention.filter(pl.col("step").is_in(steps.implode()))
    batches = sorted(_list_sizes(attention, "size_b"))  # windows of an image make a batch larger
    sizes = {"batch": batches[:1]}
    longest = in_steps.group_by("step", maintain_order=True).agg(pl.col("size_k").max())
    sizes["context"] = longest["size_k"].to_list() or _list_sizes(attention, "size_k")
    if attention.is_empty():
        sizes["context"] = _list_score_contexts(table, phase, steps)
    tokens = _tabulate_tokens(run).filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    tokens = tokens.filter(pl.col("step").is_in(steps.implode())) if run.has("step") else tokens
    sizes["tokens"] = tokens["tokens"].sort().gather_every(1, tokens.height // 2)[:1].to_list()
    return {key: values for key, values in sizes.items() if values}


def list_prompts(run: Run) -> list[int]:
    """List how many tokens those steps read that read more than most: prompts, between single tokens."""
    table = _tabulate_tokens(run) if run.has("step") else pl.DataFrame({"tokens": []})
    prompts = table.filter(pl.col("tokens") > pl.col("tokens").median())
    return prompts["tokens"].unique().sort().to_list()


@cache_per_run
def _tabulate_tokens(run: Run) -> pl.DataFrame:
    """Tabulate how many tokens the steps of each phase read, by the rows of most of their products.

    The head may read the last token only. Without steps, one number for each phase.
    """
    schema = {"step": pl.Int64, "phase": pl.String, "tokens": pl.Int64}
    if not (run.has("shape") and run.has("category")):
        return pl.DataFrame(schema=schema)
    rows = selection.select_timed(run, Look()).filter(pl.col("category") == "matmul")
    labels = (
        (pl.col(c) if run.has(c) else pl.lit(None)).cast(kind).alias(c)
        for c, kind in {"step": pl.Int64, "phase": pl.String, "op": pl.String, "shape": pl.String}.items()
    )
    counts = rows.select(*labels, "category").group_by(pl.all()).len()
    products = counts.with_columns(_parse_size(n) for n in "bmn").filter(_is_product(), pl.col("size_n") > 1)
    sums = products.group_by("step", "phase", tokens="size_m").agg(pl.col("len").sum())
    of_step = sums.sort("step", "phase", "len", "tokens").group_by("step", "phase", maintain_order=True)
    return of_step.last().select(*schema).collect()


def list_weights(run: Run) -> set[str]:
    """List the sizes of the weights of all products and convolutions."""
    return set(count_work_by_step(run, is_constant_needed=False).filter("is_product")["kind"]) - {
        "attention",
        _CORE_PRODUCTS,
    }


def find_largest_image(run: Run) -> str | None:
    """Find the largest input of a convolution; None without one."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return None
    images = table.filter(pl.col("category") == "conv")["shape"].str.extract(r"^(\S+) \* ").drop_nulls()
    return max(images.to_list(), key=count_numbers, default=None)


def list_image_counts(run: Run, phase: str | None) -> list[int]:
    """List the one number of images that all convolutions of a phase have; empty if they differ."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return []
    of_phase = table.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    images = of_phase.filter(pl.col("category") == "conv")["shape"]
    counts = images.str.extract(r"^(\d+)[x×]\d+[x×]\d+\S* \* ").cast(pl.Int64).unique()
    return counts.to_list() if counts.len() == 1 and not counts.null_count() else []


def find_experts(run: Run) -> str:
    """Find how many experts compute each token: `2 of 8`; empty if the shapes do not say it, or differ."""
    table = _tabulate_shapes(run)
    if table.is_empty():
        return ""
    pairs = table["shape"].str.extract_groups(r"\be=(?<all>\d+)/(?<chosen>\d+)").struct.unnest().unique()
    pairs = pairs.drop_nulls()
    return f"{pairs['chosen'][0]} of {pairs['all'][0]}" if pairs.height == 1 else ""


def count_numbers(sizes: str) -> int:
    """Count the numbers of an array by its sizes."""
    return math.prod(map(int, re.findall(r"\d+", sizes)))


def measure_product_flops(run: Run, steps: pl.Series) -> float | None:
    """Measure the FLOPs of products and convolutions in the median of these steps, or of a run without any.

    Those of attention are not counted.
    """
    if not all(run.has(column) for column in ("flops", "category", "shape")):
        return None
    is_product = pl.col("category").cast(pl.String).is_in(["matmul", "conv"])
    is_product &= ~pl.col("shape").cast(pl.String).str.contains(r"\bb=\d")
    rows = selection.select_timed(run, Look()).filter(is_product)
    step = (pl.col("step") if run.has("step") else pl.lit(0)).cast(pl.Int64).alias("step")
    sums = rows.select(step, "flops").drop_nulls().group_by("step").agg(pl.col("flops").sum()).collect()
    of_steps = sums.filter(pl.col("step").is_in(steps.implode())) if run.has("step") else sums
    return float(of_steps["flops"].median()) if of_steps.height else None  # type: ignore[arg-type]


def _parse_size(letter: str) -> pl.Expr:
    return pl.col("shape").str.extract(rf"\b{letter}=(\d+)").cast(pl.Int64).alias(f"size_{letter}")


def _list_score_contexts(table: pl.DataFrame, phase: str | None, steps: pl.Series) -> list[int]:
    """List the contexts of attention that is two products: n of the one whose k is the head size.

    The head size is in all products of all steps. A context that does not grow is, too: then it is the one of
    both that divides the sizes of weights; unknown if both do, or another size is as frequent.
    """
    is_core = (pl.col("op") == "attn.core").fill_null(value=False)
    products = table.filter((pl.col("category") == "matmul") & (is_core | pl.col("size_b").is_not_null()))
    if products["size_b"].count():
        products = products.drop_nulls("size_b")
    heads = pl.concat([products["size_n"], products["size_k"]]).drop_nulls().mode().to_list()
    if len(heads) == 2:
        weights = _select_products(table)
        widths = {*weights["size_n"], *weights["size_k"]} - {None}
        heads = [head for head in heads if any(width % head == 0 for width in widths)]
    in_steps = pl.col("phase").eq_missing(pl.lit(phase, pl.String)) & pl.col("step").is_in(steps.implode())
    scores = (
        products.filter(in_steps & (pl.col("size_k") == heads[0])) if len(heads) == 1 else products.clear()
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


def list_number_formats(run: Run) -> dict[str, str]:
    """List the number format of the kernels that have one in all their launches, by their names."""
    if not run.has("dtype"):
        return {}
    names, formats = pl.col("name").cast(pl.String), pl.col("dtype").cast(pl.String)
    kernels = run.events.lazy().filter(pl.col("kind") == "kernel").group_by(names.alias("name"))
    of_names = kernels.agg(formats.unique()).filter(pl.col("dtype").list.len() == 1).collect()
    return {name: each[0] for name, each in of_names.iter_rows() if name and each[0]}


@cache_per_run
def read_rows(run: Run) -> dict[str, str | bool]:
    """Read from rows what their source does not state: number format, quantised products, compiled code."""
    settings: dict[str, str | bool] = {}
    products = _tabulate_shapes(run)
    if products.height:
        formats = products.filter(pl.col("category").is_in(["matmul", "conv"])).drop_nulls("dtype")
        counts = formats.group_by("dtype").agg(pl.col("len").sum()).sort("len", "dtype")
        settings |= {"dtype": counts["dtype"][-1]} if counts.height else {}
    if run.meta.get("work") == "operators":  # of a trace of PyTorch, whose operators have known names
        names = run.events["name"].unique().cast(pl.String)
        settings["quant"] = "int8" if names.str.starts_with("quantized::linear").any() else "none"
        settings["compiled"] = bool(names.str.contains(_COMPILED_NAMES).any())
        settings |= {"attention": _describe_attention(run)} | _read_training(run, names)
        options = [option for option in _PROFILER_OPTIONS if selection.has_option_on(run, option)]
        settings["profiler options"] = " + ".join(options) or "none"
    settings |= _read_nodes(run)
    if run.meta.get("producer") in XLA:
        names = run.events["name"].unique().cast(pl.String)
        functions = names.str.extract(r"^PjitFunction\((.+)\)$").drop_nulls().sort().to_list()
        settings["jitted functions"] = join_examples(functions)
        settings["XLA operations"] = f"{len(list_kernel_names(run)):,}"
    return settings


def _describe_attention(run: Run) -> str:
    """Describe how operators of PyTorch compute attention: `flash`, or by products; empty if they do not."""
    if not run.has("category"):
        return ""
    kernels = run.events.filter(pl.col("kind") == "kernel")
    names = kernels.select(pl.col("name", "category").cast(pl.String)).unique()
    fused = names.filter(category="attention")["name"].str.replace_all(_ATTENTION_WORDS, "").unique().sort()
    if fused.len():
        return " + ".join(filter(None, fused)) or "fused"
    return _SOFTMAX_OF_PRODUCTS if _SOFTMAX in names["name"] else ""


def _read_nodes(run: Run) -> dict[str, str | bool]:
    """Read from nodes of ONNX whether they are quantised, and the number format of the model."""
    producer, settings = run.meta.get("producer"), dict[str, str | bool]()
    if producer in (ONNX, "OpenVINO"):
        names = run.events["name"].unique().cast(pl.String)
        settings["quant"] = "int8" if names.str.contains(_INTEGER_NODES).any() else "none"
    if producer == ONNX:
        casts = bool(names.str.contains(_INSERTED_CASTS).any())
        settings["inserted casts"] = casts
        if run.has("dtype"):
            floats = {*run.events["dtype"].unique().cast(pl.String).drop_nulls()} & {*_FLOATS}
            floats -= {"fp32"} if casts else set()  # in which the processor computes what it has no fp16 for
            settings["dtype"] = " + ".join(sorted(floats))
    return settings


def _read_training(run: Run, names: pl.Series) -> dict[str, str | bool]:
    """Read from the rows of a trace of PyTorch how it was trained, as far as their names say it."""
    settings: dict[str, str | bool] = {}
    backward, updates = (_list_phase_names(run, phase) for phase in ("backward", "optimizer"))
    if backward.len():
        settings[RECOMPUTED] = bool(backward.str.contains(_FORWARD_OPERATORS).any())
        settings["optimizer"] = "none of torch.optim"
    optimizers = names.str.extract(_OPTIMIZER_STEP).drop_nulls().sort().to_list()
    if optimizers:  # clipping gradients is foreach, too
        updates = updates if updates.len() else names
        is_fused, is_foreach = (updates.str.starts_with(f"aten::_{k}_").any() for k in ("fused", "foreach"))
        kind = "fused" if is_fused else "foreach" if is_foreach else "one parameter at a time"
        settings["optimizer"] = f"{' + '.join(optimizers)} ({kind})"
    loaders = names.str.extract(_DATA_LOADER).drop_nulls().unique()
    if loaders.len() == 1:
        settings["data loader"] = "processes" if "Multi" in loaders[0] else "no processes"
    return settings


def _list_phase_names(run: Run, phase: str) -> pl.Series:
    is_there = (pl.col("kind") == "kernel") & (
        pl.col("phase") == phase if run.has("phase") else pl.lit(False)
    )
    return run.events.filter(is_there)["name"].unique().cast(pl.String)


def join_examples(names: Sequence[str]) -> str:
    """Join the first of some names, and the number of the others."""
    more = f" and {len(names) - params.MAX_EXAMPLES} more" * (len(names) > params.MAX_EXAMPLES)
    return ", ".join(names[: params.MAX_EXAMPLES]) + more


def count_xla_operations(run: Run) -> dict[str, int]:
    """Count how often each operation of XLA runs in a step; those that do not always run as often lack."""
    if run.meta.get("producer") not in XLA or not run.has("step"):
        return {}
    steps = _count_kernel_steps(run)
    kernels = run.events.filter((pl.col("kind") == "kernel") & pl.col("step").is_not_null())
    counts = kernels.group_by(pl.col("name").cast(pl.String)).len()
    return {name: count // steps for name, count in counts.iter_rows() if count % steps == 0}


def sum_kinds(counts: Mapping[str, int]) -> Counter[str]:
    """Sum operations of XLA by their kind, which is their name without its number."""
    sums = Counter[str]()
    for name, count in counts.items():
        sums[re.sub(r"[.\d]+$", "", name)] += count
    return sums


@cache_per_run
def count_launches_per_step(run: Run) -> dict[str, int]:
    """Count how often each kernel runs in a step; those that do not run equally often in all steps lack.

    The first step and the last one may be cut, or of another kind.
    """
    if not run.has("step") or run.meta.get("producer") in XLA:
        return {}
    kernels = run.events.lazy().filter(pl.col("kind") == "kernel").drop_nulls("step")
    counts = kernels.group_by(pl.col("name").cast(pl.String), "step").len().collect()
    inner = counts.filter(pl.col("step").is_between(*_find_ends(counts["step"]), closed="none"))
    steps = inner["step"].n_unique()
    constant = inner.group_by("name").agg(pl.col("len").unique(), count=pl.len())
    constant = constant.filter(pl.col("len").list.len() == 1, pl.col("count") == steps)
    return {name: counts[0] for name, counts in constant.select("name", "len").iter_rows()}


def _find_ends(steps: pl.Series) -> tuple[int, int]:
    return (int(steps.min()), int(steps.max())) if steps.len() else (0, 0)  # type: ignore[arg-type]


def count_program_inputs(run: Run) -> Counter[str]:
    """Count the arrays that XLA's program gets by their sizes; none if the source does not list them."""
    counts = run.meta.get("program inputs")
    is_listed = isinstance(counts, dict) and all(type(n) is int and n > 0 for n in counts.values())
    return Counter(counts) if is_listed else Counter()


@cache_per_run
def list_kernel_names(run: Run) -> frozenset[str]:
    """List the names of the kernels of a run."""
    return frozenset(run.events.filter(pl.col("kind") == "kernel")["name"].unique().cast(pl.String))


def have_equal_shares(x: Mapping[tuple[int, int], int], y: Mapping[tuple[int, int], int]) -> bool:
    """Return whether as many kinds of products make up the same shares: nearly, as routers choose experts."""
    sides = (sorted(count / max(counts.values()) for count in counts.values()) for counts in (x, y))
    pairs = list(zip_longest(*sides, fillvalue=0.0))
    return all(max(pair) < params.STEP_SIZE_RATIO * min(pair) for pair in pairs)


def find_other_weights(x: Mapping[tuple[int, int], int], y: Mapping[tuple[int, int], int]) -> tuple[str, ...]:
    """Find the largest weights that are others, as of a head with another vocabulary; none if it is not sure.

    As many products must have the weights of the one run as have those of the other, and more to compute.
    """
    only_x, only_y = ({k: n for k, n in one.items() if k not in other} for one, other in ((x, y), (y, x)))
    if sorted(only_x.values()) != sorted(only_y.values()):
        return ()
    flops = [sum(n * k * count for (n, k), count in only.items()) for only in (only_x, only_y)]
    return tuple("×".join(map(str, max(only))) for only in (only_x, only_y)) if flops[0] != flops[1] else ()


def format_means(means: tuple[float, float]) -> tuple[str, str]:
    """Format two averages, with a decimal if one is small and any is no whole number."""
    digits = 1 if min(means) < 10 and not all(mean == int(mean) for mean in means) else 0
    a, b = (f"{mean:,.{digits}f}" for mean in means)
    return a, b


def describe_arguments(x: Any, y: Any) -> tuple[str, str]:
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
