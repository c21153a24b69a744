"""Fill the work that the kernels of a run lack, from the config.json of its model."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from capture.classify.step_annotations import AttentionSums, StepAnnotation, parse_step_annotation
from capture.errors import UnreadableError
from capture.model_work.model_config import (
    CONFIG_KEY,
    NO_CONFIG,
    NOTES_KEY,
    OPS_KEY,
    ConfigChoice,
    DecoderConfig,
    find_config,
    parse_config,
    read_config,
)
from capture.model_work.role_work import (
    ADDING_NORM,
    CHOICE,
    HEADS_NORM,
    PADDING,
    REPEATED,
    WORKING_CATEGORIES,
    Sharding,
    StepTokens,
    estimate_role,
)
from capture.run import DTYPES, Run, select_or_null

_OUTSIDE_LAYERS: Final = ("lm_head", "norm", ADDING_NORM, "embed")
# of kernels that add a residual before the norm: by engines' names, a choice of ck_tile, and one of aiter
_ADDING: Final = r"fused_add_rms|FusedAddEnumE[12]|add_rmsnorm_quant_kernelI\w*?ELb1E"
_IN_FRONT: Final = ("attn.qkv", "attn.q", "attn.k", "attn.v")
_PADDING_KERNEL: Final = "constant_pad_nd"  # pads the activations of experts, if their weights are padded
_DRAFT: Final = "draft"  # phase of another model
_TEXT_PHASES: Final = ("prefill", "decode", "verify")
_INPUT_OF_TEXT: Final = re.compile(r"(\d{1,9})x(\d{1,9})")  # sequences and tokens that a step reads
_GROUP: Final = ["step", "layer", "role"]
_WORK_TYPES: Final = {"shape": pl.String, "dtype": pl.String, "flops": pl.Float64, "bytes": pl.Float64}


def fill_model_work(runs: list[Run], trace: Path | None, choice: ConfigChoice) -> list[Run]:
    """Return the runs with the work that the config of their model gives; as they are without one.

    A config that was searched is used only if it has as many layers as the run; one that the user named
    also if it has more. Raises UnreadableError if the one that the user named is none.
    """
    if choice.path == NO_CONFIG:
        return runs
    named = read_config(Path(choice.path).expanduser()) if choice.path else None
    return [_fill_run(run, trace, choice, named) for run in runs]


def _fill_run(run: Run, trace: Path | None, choice: ConfigChoice, named: DecoderConfig | None) -> Run:
    recorded = parse_config(run.meta.get(CONFIG_KEY), "the recording")
    config = named or recorded or _search_config(run, trace)
    if config is None:
        return run
    agreement = f"{config.layers} layers in {config.label}, {_count_blocks(run)} blocks in the trace"
    refusal = _find_refusal(run, config, agreement, is_named=named is not None)
    if refusal:
        return _with_notes(run, [refusal] if config is not recorded else [])
    sharding = _find_sharding(run, config, choice)
    events, ops = _fill_events(run, config, sharding)
    if not ops:
        return _with_notes(run, [f"{agreement}; no kernel lacks work that it gives"] if named else [])
    notes = [f"kernels of {len(ops)} ops have work from it: {agreement}", _describe(config, sharding, choice)]
    filled = _with_notes(run.with_events(events), notes)
    return replace(filled, meta={**filled.meta, OPS_KEY: ops})


def _count_blocks(run: Run) -> int:
    """Count the layers of a run, up to the last."""
    last = run.events["layer"].max() if run.has("layer") else None
    return last + 1 if isinstance(last, int) else 0


def _find_refusal(run: Run, config: DecoderConfig, agreement: str, *, is_named: bool) -> str:
    """Return why a config cannot be used for a run; empty if it can."""
    if any(not run.has(column) for column in ("op", "step", "category", "dur")):
        return f"{config.label} is not used: the run has no steps, or no ops"
    blocks = _count_blocks(run)
    if blocks > config.layers or (blocks != config.layers and not is_named):
        return f"{agreement}: another model, so its config is not used"
    devices = _count_devices(run)
    return f"{config.label} is not used: kernels of {devices} devices share the steps" if devices > 1 else ""


def _count_devices(run: Run) -> int:
    """Count the devices whose kernels the run has."""
    if not (run.has("track") and run.has("lens")):
        return 1
    on_device = run.events.lazy().filter(pl.col("kind") == "kernel", pl.col("lens") == "gpu")
    tracks = on_device.select(pl.col("track").cast(pl.String).unique().drop_nulls()).collect()["track"]
    return len({track.partition("/")[0] for track in tracks})


def _with_notes(run: Run, notes: list[str]) -> Run:
    return replace(run, meta={**run.meta, NOTES_KEY: notes}) if notes else run


def _search_config(run: Run, trace: Path | None) -> DecoderConfig | None:
    """Search the config of a run's model; None if there is none, or another document of this name."""
    path = find_config(trace, run.meta.get("model")) if trace else None
    try:
        return read_config(path) if path else None
    except UnreadableError:
        return None


def _find_sharding(run: Run, config: DecoderConfig, choice: ConfigChoice) -> Sharding:
    """Find how many ranks share the model: as the user says, else as many as the job has, else one."""
    size = run.meta.get("world_size")
    tp = choice.tp or (size if type(size) is int and 0 < size <= config.heads else 1)
    is_small = config.routed is not None and config.routed.weight_bytes < 1
    names = run.events["name"].unique().cast(pl.String)
    return Sharding(tp, choice.ep or 1, is_small and names.str.contains(_PADDING_KERNEL, literal=True).any())


def _describe(config: DecoderConfig, sharding: Sharding, choice: ConfigChoice) -> str:
    """Describe what is assumed."""
    ranks = "" if choice.tp else f"--tp {sharding.tp}, "
    ranks += "" if choice.ep or config.mixture is None else f"--ep {sharding.ep}, "
    windows = {w for w in config.windows or () if w}
    parts = [f"assumed: {ranks}the KV cache in {config.base.dtype}"]
    parts += [f"windows of {', '.join(map(str, sorted(windows)))} tokens"] if windows else []
    parts += [f"experts padded to {PADDING}"] if sharding.is_padded else []
    return "; ".join(parts)


def _fill_events(run: Run, config: DecoderConfig, sharding: Sharding) -> tuple[pl.DataFrame, list[str]]:
    """Return the events with shape, dtype, FLOPs and bytes where they lacked work, and the ops of these."""
    events = run.events.with_row_index("row")
    open_rows = _select_open_rows(events)
    steps = {number: step for number, step in _iter_steps(run) if step is not None}
    groups = open_rows.select(_GROUP).unique()
    works = []
    for step, layer, role in groups.iter_rows():
        work = estimate_role(config, sharding, role, layer, steps[step]) if step in steps else None
        if work is not None:
            works.append((step, layer, role, work.shape, work.dtype, work.flops, work.bytes))
    schema = {"step": pl.Int64, "layer": pl.Int32, "role": pl.String, **_WORK_TYPES}
    table = pl.DataFrame(works, schema=schema, orient="row")
    filled = open_rows.join(table, on=_GROUP, how="inner", nulls_equal=True)
    part = (pl.col("dur") / pl.col("dur").sum().over(_GROUP)).fill_nan(None)
    share = pl.when(pl.col("role").is_in(REPEATED)).then(1.0).otherwise(part)
    filled = filled.with_columns(pl.col("flops", "bytes") * share).select("row", *_WORK_TYPES)
    missing = [c for c in _WORK_TYPES if c not in events.columns]
    events = events.with_columns(pl.lit(None, DTYPES[c]).alias(c) for c in missing)
    joined = events.join(filled, on="row", how="left", suffix="_config", maintain_order="left")
    columns = [pl.coalesce(pl.col(f"{c}_config").cast(DTYPES[c]), c).alias(c) for c in _WORK_TYPES]
    order = [c for c in DTYPES if c in events.columns]
    ops = joined.filter(pl.col("flops_config").is_not_null())["op"].unique().cast(pl.String).sort().to_list()
    return joined.with_columns(columns).select(order), ops


def _select_open_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Select row, step, layer, role and dur of kernels that do the work of a role and lack FLOPs and bytes.

    None of a role and step of which any kernel has them.
    """
    columns = ("kind", "name", "t", "dur", "count", "step", "layer", "op", "category", "flops", "bytes")
    frame = select_or_null(events, columns)
    texts = pl.col("name", "op", "category").cast(pl.String)
    frame = frame.with_columns(texts, row=events["row"]).filter(pl.col("kind") == "kernel")
    frame = frame.with_columns(role=_find_role())
    works = [
        (pl.col("role") == role) & pl.col("category").is_in(list(categories))
        for role, categories in WORKING_CATEGORIES.items()
        if role not in (ADDING_NORM, CHOICE)
    ]
    works.append(pl.col("role").is_in([ADDING_NORM, CHOICE]))
    is_single = pl.col("count").fill_null(1) == 1
    has_place = pl.col("layer").is_not_null() | pl.col("role").is_in(_OUTSIDE_LAYERS)
    rows = frame.filter(is_single, has_place, pl.any_horizontal(works))
    rows = rows.filter(pl.col("step").is_not_null(), pl.col("dur") > 0)
    is_open = pl.all_horizontal(pl.col("flops", "bytes").is_null())
    return rows.filter(is_open.all().over(_GROUP)).select("row", *_GROUP, "dur")


def _find_role() -> pl.Expr:
    """Return the role: mostly the op; norms are of heads where attention follows its products."""
    op, is_norm = pl.col("op"), (pl.col("op") == "norm") & (pl.col("category") == "norm")
    place = ["step", "layer"]
    begin = pl.col("t").filter(op.is_in(_IN_FRONT)).min().over(place)
    end = pl.col("t").filter(op == "attn.core").min().over(place)
    of_heads = is_norm & (pl.col("t") > begin) & (pl.col("t") < end)
    adds = is_norm & pl.col("name").str.contains(_ADDING)
    chooses = (op == "moe.router") & (pl.col("category") == "moe")
    choices = ((of_heads, HEADS_NORM), (adds, ADDING_NORM), (chooses, CHOICE))
    return pl.coalesce(*(pl.when(condition).then(pl.lit(role)) for condition, role in choices), op)


def _iter_steps(run: Run) -> Iterator[tuple[int, StepTokens | None]]:
    """Yield number and tokens of each step; None if the run does not report them."""
    columns = ("kind", "name", "step", "phase", "tokens", "context", "batch", "shape")
    frame = select_or_null(run.events, columns).filter(pl.col("kind") == "step").drop("kind")
    texts = pl.col("name", "phase", "shape").cast(pl.String)
    for name, number, phase, tokens, context, batch, shape in frame.with_columns(texts).iter_rows():
        annotation = parse_step_annotation(name)
        sizes = _INPUT_OF_TEXT.fullmatch(shape or "")
        read = int(sizes[1]) * int(sizes[2]) if sizes and phase in _TEXT_PHASES else tokens
        yield number, None if phase == _DRAFT else _build_tokens(annotation, phase, read, context, batch)


def _build_tokens(
    annotation: StepAnnotation | None,
    phase: str | None,
    tokens: int | None,
    context: int | None,
    batch: int | None,
) -> StepTokens | None:
    """Build the tokens of a step from its annotation, as far as it has them, else from its columns."""
    if not tokens or not batch:
        return None
    requests = tokens if phase == "verify" else batch  # of a draft, each token is judged
    if annotation is not None:
        step = StepTokens(tokens, requests, annotation.prefill, annotation.decode)
        if step.list_sums():
            return step
    if context is None or phase not in _TEXT_PHASES:
        return StepTokens(tokens, requests)
    uniform = AttentionSums(batch, tokens, context * batch, tokens * tokens // batch, tokens * context)
    is_prefill = phase == "prefill" or tokens == context * batch  # a text read again, without a cache
    return StepTokens(tokens, requests, uniform if is_prefill else None, None if is_prefill else uniform)
