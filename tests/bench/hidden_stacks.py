"""How much of the time of real architectures gets its layer and role when only the order of ops is known.

    python -m tests.bench.hidden_stacks [ARCHITECTURE …] [--keep DIR] [--write FILE] [--rows]

Small random models of transformers run under torch's profiler; ranges around every module are the truth, and
are taken out of the trace before it is read. Shares of time: right, unknown, confidently wrong. `--rows`
prints what is wrong or unknown by name, place and what was inferred.

A layer that runs N times in a pass with the same weights is N layers, in the order in which they run: each
has a cache and a time of its own, and the order of kernels does not tell weights apart.
"""

import argparse
import bisect
import gzip
import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from capture.load_runs import load
from tests.bench.hidden_stack_models import ARCHITECTURES, SMALL
from tests.capture.classify._traces import mark_modules

_KINDS = (
    "AutoModelForSpeechSeq2Seq", "AutoModelForSeq2SeqLM", "AutoModelForCausalLM", "AutoModelForMaskedLM",
    "AutoModelForCTC", "AutoModelForImageClassification", "AutoModel",
)  # fmt: skip
_LAYER = re.compile(r"(?:^|\.)(?<!pos_conv_embed\.)(?:layers|h|layer|blocks?)\.(\d+)(?:\.(.*)|$)")
# other ways to write a layer's modules: lists by kind, a product within its wrapper
_SPELLINGS = (
    (re.compile(r"\b(attention|ffn|layer_norm)[s12]\.(\d+)(?=\.|$)"), r"layers.\2.\1"),
    (re.compile(r"(_proj)\.linear$"), r"\1"),
    (re.compile(r"(_layer_groups\..*)\.ffn$"), r"\1.intermediate.dense"),
    (re.compile(r"(_layer_groups\..*)\.ffn_output$"), r"\1.output.dense"),
    (re.compile(r"\b(?:blocks?|layers)\.(\d+)\.(?:blocks\.)?(\d+)(?=\.|$)"), r"stage\1.layers.\2"),
    (re.compile(r"\b\w+_layer_groups\.\d+\.\w+_layers\b"), "layers"),
)
_NORM = r"([nN]orm\w*|(\b|_)ln_?\w*|layer_?norm)$"
# what follows the layer's number in a path, with the function, → the ops that are right there
_FAMILIES = tuple(
    (re.compile(pattern), ops)
    for pattern, ops in (
        (r"F:(apply_rotary|rotate)|rotary", r"attn\.(rope|core|kv|copy)"),
        (r"F:multi_head", r"attn"),  # with the products around it
        (r"F:", r"attn\.(core|kv|copy)"),
        (r"^update$", r"ssm\.(core|conv|in)|attn\.(core|kv|copy)"),  # of a state, or of a cache
        (r"linear_attn\.([qkvabg]+_proj|output_gate)$", r"ssm\.in"),
        (r"linear_attn\.o_proj$", r"ssm\.out"),
        (r"linear_attn$", r"ssm\.(core|conv|in)|norm"),  # q and k are scaled to length 1
        (r"mixer\.act_fn$", r"mlp\.act"),  # of a feed-forward that is called a mixer
        (r"(mixer|mamba|linear_attn|^conv)\b.*" + _NORM, r"norm|ssm\.(norm|core)"),
        (r"residual_scale$", r"residual|moe\.combine"),
        (r"output\.ln_input_act$", "residual"),  # of I-BERT: adds, and observes its range
        (_NORM, "norm"),
        (r"(mixer|mamba|linear_attn|^conv|decoder_mamba)\b.*(in_proj\w*|x_proj|dt_proj)$", r"ssm\.in"),
        (r"(mixer|mamba|linear_attn|^conv)\b.*out_proj$", r"ssm\.out"),
        (r"shared_(experts?|mlp)", r"moe\.shared|mlp"),
        (r"router|\.gate$|experts|moe", r"moe"),
        (r"_layernorm\.", "norm"),  # a gate of its own scales it
        (r"(?i)(attn|attention|mixer)\b.*?(o_proj|out_proj|c_proj|\.o|output\.dense|attn_out|\bdense|Wo|out_lin|\.proj|post_proj|projection(_layer)?)$",
         r"attn\.out"),
        (r"self_attn\.output$", r"attn\.out"),
        (r"attn\.gate_proj$", r"attn\.qkv"),  # scales the output of attention
        (r"(q_proj|k_proj|v_proj\w*|qkv|c_attn|query\w*|\.key(_proj)?|\.value(_proj)?|projection_(key|value)|[qk]v?_[ab]_proj\w*|pos_\w*proj|Wqkv|W[qkv]|in_proj|\.[qkv]|[qkv]_lin|[qkv]_head)$",
         r"attn\.qkv"),
        (r"\b(wi(_[01])?|gate_up_proj_adapter_list\S*|(up|gate|gate_up)_proj|fc1|c_fc|fc_in|Wi|w1|w3|lin(ear)?_?(fc)?1|dense1)$|"
         r"\b(intermediate[._]dense|dense_h_to_4h)$",
         r"mlp\.(up|gate|gate_up)"),
        (r"\b(wo|down_proj|fc2|c_proj|fc_out|output_dense|^output\.dense|dense_4h_to_h|Wo|w2|lin(ear)?_?(fc)?2|dense2)$",
         r"mlp\.down"),
        (r"ffn\.(lin1|0)$", r"mlp\.up"),
        (r"ffn\.(lin2|2|\d+\.output\.dense)$", r"mlp\.down"),
        (r"mixer|mamba|linear_attn|^conv", r"ssm\.(core|conv|in)"),
        (r"(?i)attention\.output$|^output$|^attn_output", r"residual"),
        (r"^(self_)?attention$", r"attn\.(core|kv|copy|rope)|residual"),  # which may add its input
        (r"(?i)attn|attention", r"attn\.(core|kv|copy|rope)"),
        (r"(mlp|ffn|feed_forward)$", r"mlp\.act|moe|residual"),
        (r"mlp|ffn|feed_forward|DenseReluDense|act\w*", r"mlp\.act"),
        (r"^@|resid|layer\.\d+$", r"residual|moe\.combine"),
    )
)  # fmt: skip
_OUTSIDE = (
    (r"embed_out$", r"lm_head"),
    (r"embed|wte|wpe|embedding", r"embed|norm"),
    (_NORM, r"norm"),
    (r"lm_head|proj_out|^head$", "lm_head"),
)
_GENERAL = (
    "copy",
    "elementwise",
    "reduce",
    "softmax",
    "matmul",
    "index",
    "cat",
    "sort",
    "topk",
    "conv",
    "scan",
    "attn",
    "pool",
    "resample",
)


WRITTEN = ("name", "dur", "true_layer", "ops")


class Score(NamedTuple):
    """Shares of time in percent, and what is not right: (name, place, inferred) → ns."""

    layer: tuple[float, float, float]  # right, unknown, wrong
    role: tuple[float, float, float]
    rows: Counter[tuple[str, str, str]]


Place = tuple[int | None, str | None, str]  # layer (−1 outside), ops that are right, path


class Range(NamedTuple):
    """A module or function that ran, with its place in the model."""

    start: float
    end: float
    paths: tuple[str, ...]  # of modules, outermost first
    function: str
    pass_layer: int | None = None  # which layer of the pass it is in, where layers run again


def read_truth(ranges: Range | None) -> tuple[int, str | None]:
    """Return layer (−1 outside) and the ops that are right (None: not determined) of an op in a range."""
    if ranges is None or not ranges.paths:
        return -1, None
    paths = [path for path in ranges.paths if "stage" in path] or ranges.paths
    matches = [match for path in paths if (match := _LAYER.search(path))]
    if not matches:
        path = ranges.paths[-1]
        return -1, next((ops for pattern, ops in _OUTSIDE if re.search(pattern, path)), None)
    innermost = _LAYER.search(ranges.paths[-1])
    inside = (innermost[2] if innermost else ranges.paths[-1]) or "@"
    is_update = ranges.function == "update" and re.search(r"mixer|mamba|linear_attn|^conv", inside)
    is_attention = ranges.function and not is_update
    text = f"F:{ranges.function}" if is_attention else "update" if is_update else inside
    layer = int(matches[0][1]) if ranges.pass_layer is None else ranges.pass_layer
    return layer, next((ops for p, ops in _FAMILIES if p.search(text)), None)


def judge_role(op: str | None, ops: str | None) -> str | None:
    """Return right, unknown or wrong; None where the truth is not determined."""
    if ops is None:
        return None
    if op is None or op in _GENERAL:
        return "unknown"
    return "right" if re.match(ops, op) else "wrong"


def _correct_by_name(name: str, ops: str | None) -> str | None:
    """Return the ops of a place for one kernel there: the attention of a head, a copy before a projection."""
    if ops == "lm_head" and "scaled_dot_product" in name:
        return r"attn\.core"
    return rf"{ops}|attn\.copy" if ops == r"attn\.qkv" and name in ("aten::clone", "aten::copy_") else ops


@contextmanager
def mark_model(model: Any, torch: Any) -> Iterator[None]:
    """Open ranges around modules and around functions of attention."""
    import sys

    from transformers import cache_utils, modeling_utils

    mark_modules(model, torch)

    def mark(function: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with torch.profiler.record_function("F:" + function.__name__):
                return function(*args, **kwargs)

        return run

    names = ("apply_rotary_pos_emb", "repeat_kv", "eager_attention_forward", "apply_rotary_emb",
             "apply_rotary_pos_emb_interleave")  # fmt: skip
    modeling = sys.modules[type(model).__module__]
    functions = modeling_utils.ALL_ATTENTION_FUNCTIONS
    places = [(modeling, name) for name in names if hasattr(modeling, name)]
    places.append((torch.nn.functional, "multi_head_attention_forward"))
    before = {place: getattr(*place) for place in places}
    sdpa, update = functions["sdpa"], cache_utils.DynamicCache.update
    for place, function in before.items():
        setattr(*place, mark(function))
    functions._global_mapping["sdpa"] = mark(sdpa)
    cache_utils.DynamicCache.update = mark(update)
    try:
        yield
    finally:
        for place, function in before.items():
            setattr(*place, function)
        functions._global_mapping["sdpa"] = sdpa
        cache_utils.DynamicCache.update = update


def build_model(name: str, torch: Any) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **{**SMALL, **ARCHITECTURES[name]})
    for kind in _KINDS:
        auto = getattr(transformers, kind)
        if type(config) in auto._model_mapping:
            if name in ("bert", "deberta", "modernbert") and kind == "AutoModelForCausalLM":
                continue
            return auto.from_config(config).eval()
    raise SystemExit(f"{name}: no model of this type")


def run_model(model: Any, torch: Any) -> None:
    """Run a prompt and five decode steps, or four passes of a model that generates nothing."""
    config = model.config
    if model.main_input_name == "pixel_values":
        inputs = {"pixel_values": torch.randn(2, 3, 64, 64)}
    elif model.main_input_name == "input_values":
        inputs = {"input_values": torch.randn(1, 16000)}
    elif model.main_input_name == "input_features" and not hasattr(config, "num_mel_bins"):
        inputs = {"input_features": torch.randn(1, 64, config.feature_projection_input_dim)}
    elif model.main_input_name == "input_features":
        inputs = {"input_features": torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)}
    else:
        inputs = {"input_ids": torch.randint(5, 500, (1, 24))}
    if not hasattr(model, "generate") or not model.can_generate():
        for _ in range(4):
            model(**inputs)
        return
    try:
        model.generate(**inputs, max_new_tokens=6, min_new_tokens=6, do_sample=False)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        print(f"  generate: {error}; forward instead")
        for _ in range(4):
            model(**inputs)


def record(name: str, file: Path) -> None:
    """Write the trace of a model, with the ranges of its modules."""
    import torch

    torch.set_num_threads(1)
    model = build_model(name, torch)
    with torch.no_grad(), mark_model(model, torch):
        run_model(model, torch)
        kind = torch.profiler.ProfilerActivity.CPU
        with torch.profiler.profile(activities=[kind], record_shapes=True) as profiler:
            run_model(model, torch)
    profiler.export_chrome_trace(str(file))


def nest_ranges(events: list[dict[str, Any]]) -> list[Range]:
    """Return the innermost range of each stretch of time, sorted by start."""
    marks = [e for e in events if e.get("ph") == "X" and e["name"][:2] in ("M:", "F:")]
    marks.sort(key=lambda e: (e["ts"], -e["dur"]))
    stack: list[Range] = []
    stretches: list[Range] = []
    for event in marks:
        start, end, word = event["ts"], event["ts"] + event["dur"], event["name"]
        _close(stack, stretches, start)
        outer = stack[-1] if stack else Range(0, 0, (), "")
        paths, function = outer.paths, outer.function
        if word[0] == "M":
            path = word[2:]
            for pattern, spelling in _SPELLINGS:
                path = pattern.sub(spelling, path)
            paths, function = (*paths, path), ""
        else:
            function = function or word[2:]
        stack.append(Range(start, end, paths, function))
        stretches.append(stack[-1])
    _close(stack, stretches, float("inf"))
    return stretches


def _name_linear_attention(ranges: list[Range]) -> list[Range]:
    """Return the ranges with `self_attn` as `linear_attn` where it has a gate of its own."""
    gates = ("self_attn.output_gate", "self_attn.forget_gate")
    gated = {r.paths[-2] for r in ranges if r.paths and r.paths[-1].endswith(gates)}
    return [r._replace(paths=tuple(_rename_inside(path, gated) for path in r.paths)) for r in ranges]


def _rename_inside(path: str, modules: set[str]) -> str:
    outer, found, inner = path.partition(".self_attn")
    return f"{outer}.linear_attn{inner}" if outer + found in modules else path


def _number_passes_of_layers(ranges: list[Range]) -> list[Range]:
    """Return the ranges with the number of each layer in its pass where any of its layers runs again."""
    passes: list[list[Range]] = [[]]
    end = None
    for stretch in ranges:
        if len(stretch.paths) == 1 and not stretch.function and stretch.end != end:
            passes.append([])
            end = stretch.end
        passes[-1].append(stretch)
    return [numbered for stretches in passes for numbered in _number_layers(stretches)]


def _number_layers(stretches: list[Range]) -> list[Range]:
    ends: dict[tuple[str, float], int] = {}  # module of a layer, end of its run → number
    numbers: list[int | None] = []
    number = None
    for stretch in stretches:
        place = next((at for at, path in enumerate(stretch.paths) if _LAYER.search(path)), None)
        if place == len(stretch.paths) - 1 and re.search(r"\d$", stretch.paths[-1]) and not stretch.function:
            number = ends.setdefault((stretch.paths[place], stretch.end), len(ends))
        numbers.append(None if place is None else number)
    if len({path for path, _ in ends}) == len(ends):
        return stretches
    return [stretch._replace(pass_layer=n) for stretch, n in zip(stretches, numbers, strict=True)]


def _close(stack: list[Range], stretches: list[Range], at: float) -> None:
    """Leave the ranges that end before a time; what follows is of the range around them."""
    while stack and stack[-1].end <= at:
        end = stack.pop().end
        outer = stack[-1] if stack else Range(end, at, (), "")
        stretches.append(outer._replace(start=end))


class Hidden(NamedTuple):
    """The kernels of a trace read without its ranges, with the truth."""

    rows: pl.DataFrame  # name, dur, layer, op; true_layer (−1 outside, null outside of the model), ops, path
    steps: int
    calls: int


def read_hidden(file: Path) -> Hidden:
    """Read a trace without its ranges, and place its kernels in them."""
    with gzip.open(file) as opened:
        document = json.load(opened)
    ranges = _name_linear_attention(nest_ranges(document["traceEvents"]))
    ranges = _number_passes_of_layers(ranges)
    calls = sum(e["name"] == "M:" for e in document["traceEvents"] if e.get("ph") == "X")
    kept = [e for e in document["traceEvents"] if e.get("name", "")[:2] not in ("M:", "F:")]
    with tempfile.TemporaryDirectory() as folder:
        hidden = Path(folder) / "hidden.json"
        hidden.write_text(json.dumps({**document, "traceEvents": kept}))
        (run,) = load(hidden, cache=False)
    rows = run.events.filter(pl.col("kind") == "kernel").sort("t")
    origin, starts = _find_origin(rows, kept), [r.start for r in ranges]
    missing = [
        pl.lit(None, dtype).alias(c)
        for c, dtype in (("layer", pl.Int32), ("op", pl.String))
        if c not in rows.columns
    ]
    places = list[Place]()
    for t, name in rows.select("t", pl.col("name").cast(pl.String)).iter_rows():
        at = bisect.bisect_right(starts, (t + origin) / 1000 + 1e-4) - 1
        place = ranges[at] if at >= 0 and ranges[at].paths else None
        layer, ops = read_truth(place)
        path = f"{place.paths[-1]} {place.function}" if place else "-"
        places.append((layer if place else None, _correct_by_name(name, ops), path))
    places = _fill_within_layers(places)
    truth = pl.DataFrame(places, {"true_layer": pl.Int32, "ops": pl.String, "path": pl.String}, orient="row")
    columns = rows.with_columns(missing).select(pl.col("name", "op").cast(pl.String), "dur", "layer")
    steps = run.events.filter(pl.col("kind") == "step").height
    rows = pl.concat([columns, truth], how="horizontal")
    usual = pl.col("dur").median().over("name", pl.col("path").str.replace_all(r"\d+", "N")).cast(pl.Int64)
    return Hidden(rows.with_columns(usual.clip(1)), steps, calls)  # a machine that is busy stops some


def _fill_within_layers(places: list[Place]) -> list[Place]:
    """Return the places with what a model runs itself, between two modules of one layer, in that layer."""
    filled, last = list(places), 0
    for at, (layer, _, _) in enumerate(places):
        if layer is None or layer < 0:
            continue
        before, _, module = places[last - 1] if last else places[at]
        between = [(layer, ops, path) for n, ops, path in places[last:at] if n == -1]
        is_around = all(module.startswith(path.split(" ")[0]) for _, _, path in between)
        if before == layer and is_around and len(between) == at - last:
            filled[last:at] = between
        last = at + 1
    return filled


def judge(rows: pl.DataFrame) -> Score:
    """Compare layers and roles with the truth, by time."""
    layers, roles, lines = Counter[str](), Counter[str](), Counter[tuple[str, str, str]]()
    columns = ("name", "dur", "layer", "op", "true_layer", "ops", "path")
    for name, ns, layer, op, true_layer, ops, path in rows.select(columns).iter_rows():
        seen = -1 if layer is None else layer
        verdict = "right" if seen == true_layer else "unknown" if seen < 0 else "wrong"
        verdict = "" if true_layer is None and seen < 0 else verdict
        said = judge_role(op, ops)
        layers[verdict] += ns
        roles[said or ""] += ns
        if verdict in ("wrong", "unknown") or said in ("wrong", "unknown"):
            lines[name, path, f"{layer} {op} [{verdict}/{said}] {ops}"] += ns
    return Score(_to_shares(layers), _to_shares(roles), lines)


def _find_origin(rows: pl.DataFrame, events: list[dict[str, Any]]) -> int:
    """Return the ns between the clock of the trace and that of the run."""
    first: dict[str, float] = {}
    last = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "cpu_op":
            first[event["name"]] = min(event["ts"], first.get(event["name"], event["ts"]))
    for name, t in rows.select(pl.col("name").cast(pl.String), "t").reverse().iter_rows():
        last[name] = t
    offsets = Counter(round(first[name] * 1000) - t for name, t in last.items() if name in first)
    return offsets.most_common(1)[0][0]


def _to_shares(ns: Counter[str]) -> tuple[float, float, float]:
    total = max(1, sum(ns[word] for word in ("right", "unknown", "wrong")))
    right, unknown, wrong = (100 * ns[word] / total for word in ("right", "unknown", "wrong"))
    return right, unknown, wrong


def main() -> None:
    """Print the shares of each architecture."""
    parser = argparse.ArgumentParser("python -m tests.bench.hidden_stacks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ARCHITECTURE", help="of transformers (default: all)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where traces are kept and found again")
    parser.add_argument("--write", type=Path, metavar="FILE", help="a table of the kernels and their truth")
    parser.add_argument("--rows", action="store_true", help="also what is wrong or unknown")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place, tables = args.keep or Path(folder), list[pl.DataFrame]()
        place.mkdir(exist_ok=True)
        print("architecture             layer right/unknown/wrong    role right/unknown/wrong   steps/calls")
        for name in args.names or ARCHITECTURES:
            file = place / f"{name}.json.gz"
            if not file.exists():
                record(name, file)
            hidden = read_hidden(file)
            result = judge(hidden.rows)
            shares = ["".join(f"{share:8.1f}" for share in part) for part in (result.layer, result.role)]
            print(f"{name:22}  {shares[0]}  {shares[1]}   {hidden.steps}/{hidden.calls}", flush=True)
            if args.rows:
                _print_rows(result)
            tables.append(hidden.rows.select(pl.lit(name).alias("architecture"), *WRITTEN))
    if args.write:
        small = {
            **dict.fromkeys(("architecture", "name", "ops"), pl.Categorical()),
            "true_layer": pl.Int16,
            "dur": pl.Int32,
        }
        pl.concat(tables).cast(small).write_parquet(args.write, compression="zstd", compression_level=19)


def _print_rows(result: Score) -> None:
    by_place: dict[tuple[str, str, str], int] = defaultdict(int)
    for (kernel, path, said), ns in result.rows.items():
        by_place[kernel, re.sub(r"\d+", "N", path), re.sub(r"^\d+", "N", said)] += ns
    for row, ns in sorted(by_place.items(), key=lambda pair: -pair[1])[:25]:
        print(f"    {ns / 1000:10.1f} us  {'  '.join(row)}")


if __name__ == "__main__":
    main()
