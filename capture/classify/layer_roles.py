"""Assign roles to the units of a layer by their position around mixer, norms and activation.

`assign_roles` reads the symbols of one layer (`kernel_symbols`); every other function here fills a part of
the list `roles`, and never replaces a role that is already there.
"""

import re
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final

from capture.classify.kernel_symbols import ACTIVATIONS, EXPERTS, find_ssm_output, list_positions

Roles = list[str | None]

_FIXED_ROLES: Final = {"m": "comm", "q": "quantize", "K": "attn.kv", "R": "attn.rope"}
_MAX_INPUT_PRODUCTS: Final = 4  # of attention: down and up, for q and for k and v
_BEFORE_ATTENTION: Final = re.compile(r"[xagdjceroU]+")  # runs of light units: rope, cache growth, copies
_TURN: Final = re.compile(r"[xc]?g|[xc]{0,2}d")  # the half of q that is negated, or subtracted
_ACTIVATED: Final = re.compile(f"[{ACTIVATIONS}][xacdjocregp]*$")
_FEED_FORWARD: Final = re.compile("M[^M]*[AB][^M]*M(?:x[^M]*M|(?!x))")
# scales what attention returns
_ATTENTION_GATE: Final = re.compile(r"[cxo]*M(?P<act>[AB]x|a?[eo]x)(?=M[cxo]*[aN])")

# role → op as the rest of the project writes it; any other role is its own op
_OPS: Final = {
    "attn.norm": "norm", "attn.post_norm": "norm", "attn.qk_norm": "norm", "mlp.norm": "norm",
    "mlp.post_norm": "norm", "ssm.norm": "norm", "final_norm": "norm", "comm": None,
}  # fmt: skip


def map_role_to_op(role: str | None) -> str | None:
    """Map a role to its op; None for None and for communication, which is not an op."""
    return None if role is None else _OPS.get(role, role)


@lru_cache(maxsize=1 << 11)
def assign_roles(symbols: str, mixer: tuple[int, int], has_post_norm: bool) -> tuple[str | None, ...]:
    """Assign a role to each unit of a layer, None where its position does not tell.

    `mixer` is the span of the attention or state-space part. With `has_post_norm` a norm belongs to what
    precedes it.
    """
    roles: Roles = [_FIXED_ROLES.get(symbol) for symbol in symbols]
    start, end = mixer
    start = _skip_convolutions(symbols, start, end)
    attends = symbols[start] == "C"
    _assign_before_mixer(symbols, roles, start, attends)
    if not attends and "C" in symbols[start:end]:
        _assign_parallel_mixers(symbols, roles, start, end)
        output = _assign_attention_output(symbols, roles, end)
    elif attends:
        _fill_role(roles, start, end, "attn.core")
        output = _assign_attention_output(symbols, roles, end)
    else:
        output = _assign_ssm(symbols, roles, start, end)
    feed = _assign_between(symbols, roles, output, has_post_norm)
    close = _assign_layer_end(symbols, roles, feed)
    if set(symbols[feed:close]) & set(EXPERTS):
        _assign_experts(symbols, roles, feed, close)
    else:
        _assign_dense_feed_forward(symbols, roles, feed, close)
    return tuple(roles)


@lru_cache(maxsize=1 << 11)
def count_feed_forwards(symbols: str, roles: tuple[str | None, ...]) -> int:
    """Count the feed-forwards of a layer: parts between norms with an activation and two products.

    Beside one that follows a norm, a part that begins with a residual sum adapts the layer's output.
    """
    outside_mixer = "".join(
        " " if role and role.startswith(("ssm.", "attn.core")) else symbol
        for symbol, role in zip(symbols, roles, strict=True)
    )
    feeds = [
        part
        for part in outside_mixer.split("N")
        if set(part) & {*ACTIVATIONS, *EXPERTS} and sum(symbol in "MXb" for symbol in part) >= 2
    ]
    return len([part for part in feeds if not part.startswith("a")] or feeds)


def _skip_convolutions(symbols: str, start: int, end: int) -> int:
    """Return the start of a mixer, behind convolutions that are part of attention's projections.

    Those of a state space are activated, or followed by a scan.
    """
    attention = symbols.find("C", start, end)
    is_state_space = attention < 0 or bool(set(symbols[start:attention]) & {*ACTIVATIONS, "S"})
    return start if is_state_space else attention


def _fill_role(roles: Roles, start: int, end: int, role: str) -> None:
    """Assign a role to the units from start to end that have none."""
    for at in range(start, end):
        roles[at] = roles[at] or role


def _fill_norms(symbols: str, roles: Roles, start: int, end: int, role: str) -> None:
    """Assign a role to the norms from start to end that have none."""
    for at in list_positions(symbols, "N", start, end):
        roles[at] = roles[at] or role


def _assign_before_mixer(symbols: str, roles: Roles, mixer: int, attends: bool) -> None:
    """Assign norm, input products, norms of q and k, rope and cache before the mixer."""
    first = next((at for at in range(mixer) if symbols[at] in "Mb"), mixer)
    for at in range(mixer):
        if symbols[at] == "N":
            roles[at] = "attn.norm" if at < first else "attn.qk_norm" if attends else "ssm.norm"
        elif symbols[at] in "Mb":
            roles[at] = "attn.qkv" if attends else "ssm.in"
    if attends:
        _correct_input_products(symbols, roles, mixer)
        if "V" in symbols[first:mixer]:  # what mixes positions between the products is open
            turn = _TURN.search(symbols, symbols.rfind("M", first, mixer), mixer)
            first = turn.start() if turn else mixer
        _assign_light_units(symbols, roles, first, mixer)
    else:
        _fill_role(roles, first, mixer, "ssm.core")


def _correct_input_products(symbols: str, roles: Roles, mixer: int) -> None:
    """Correct the roles of products before attention that project no q, k or v."""
    batched = list_positions(symbols, "b", 0, mixer)
    is_latent = "N" in symbols[symbols.find("M") + 1 : mixer]  # with a norm, a single one absorbs a weight
    for at in batched if len(batched) > 1 or not is_latent else ():  # scores of positions
        roles[at] = "attn.core" if len(batched) > 1 else None
    products = list_positions(symbols, "M", 0, mixer)
    if len(products) > _MAX_INPUT_PRODUCTS:
        # some may choose what is attended to
        is_open = len(products) > _MAX_INPUT_PRODUCTS + 1 or "N" in symbols[products[-3] : products[-1]]
        for at in products if is_open else products[:-3]:
            roles[at] = None  # of bottlenecks, or of a feed-forward before attention


def _assign_light_units(symbols: str, roles: Roles, start: int, attention: int) -> None:
    """Assign rotation of q and k, and growth of the cache, in the light units before attention."""
    for match in _BEFORE_ATTENTION.finditer(symbols[start:attention]):
        end = start + match.end()
        _assign_rope(symbols, roles, start + match.start(), end, touches_attention=end == attention)


def _assign_rope(symbols: str, roles: Roles, start: int, end: int, *, touches_attention: bool) -> None:
    run = symbols[start:end]
    before = len(run) - len(run.lstrip("j"))  # joined before any arithmetic: the cache
    rotation = before + _count_rotation_units(run[before:])
    first = _find_rotation_start(run, before)
    if run == "xa" and symbols[end] == "M":
        return  # a norm without mean and variance, or a product with its bias
    for at, symbol in enumerate(run):
        if before <= at < first or symbol == "r":
            continue
        if first <= at < rotation:
            role = "attn.rope"
        elif symbol == "j":
            role = "attn.kv"
        else:
            role = "attn.core" if touches_attention and symbol in "cx" and "j" in run else "attn.copy"
        roles[start + at] = roles[start + at] or role


def _find_rotation_start(run: str, joins: int) -> int:
    """Find where q and k begin to rotate, after joins of the cache, and after a norm of q and k."""
    turn = _TURN.search(run)
    return turn.start() if turn and set(run[: turn.start()]) & set("ro") else joins


def _count_rotation_units(run: str) -> int:
    """Count the units at the start of a run that rotate q and k."""
    if "x" not in run or not set(run) & set("gd"):
        return 0
    rotation = run.rfind("a") + 1
    joins = len(run[rotation:]) - len(run[rotation:].lstrip("j"))
    if re.search(r"d.*aj", run):
        return rotation + min(1, joins)  # each rotated half is joined after its sum
    return rotation + joins - 2 if joins >= 4 and rotation else rotation  # the last two joins grow the cache


def _assign_attention_output(symbols: str, roles: Roles, end: int) -> int:
    """Assign the output product after attention; return the position after it."""
    if gate := _ATTENTION_GATE.match(symbols, end):
        _fill_role(roles, gate.start("act"), gate.end("act"), "attn.core")
        end = gate.end()
    first = symbols.find("M", end)
    if first < 0:
        return end
    _fill_norms(symbols, roles, end, first, "attn.post_norm")
    _fill_role(roles, end, first, "attn.core")
    last = _find_last_output(symbols, first)
    _fill_role(roles, first, last + 1, "attn.out")
    return last + 1


def _find_last_output(symbols: str, first: int) -> int:
    """Find the last product of the attention output, of which `first` is the first."""
    stop = re.compile(f"[NaGX{ACTIVATIONS}]|$").search(symbols, first)
    last = symbols.rfind("M", first, stop.start() if stop else len(symbols))
    following = symbols.find("M", last + 1)
    between = symbols[last + 1 :] if following < 0 else symbols[last + 1 : following]
    is_parallel = "N" not in between and (following < 0 or set(between) & set(ACTIVATIONS))
    return first if is_parallel else last  # a feed-forward parallel to attention has no norm before it


def _assign_ssm(symbols: str, roles: Roles, start: int, end: int) -> int:
    """Assign a state-space mixer and its output product; return the position after it."""
    output = find_ssm_output(f"{symbols}N", end)  # a norm follows the layer
    products = [at for at in range(end, len(symbols)) if symbols[at] == "M"]
    if not products:
        _fill_role(roles, start, end, "ssm.core")
        return end
    out = products[-1] if output is None else output
    by_symbol = {"M": "ssm.in", "V": "ssm.conv"}
    for at in range(start, out):
        precedes_product = symbols[at] == "N" and "M" in symbols[at:out]
        roles[at] = roles[at] or ("ssm.norm" if precedes_product else by_symbol.get(symbols[at], "ssm.core"))
    if symbols[out - 1] == "N":
        roles[out - 1] = "ssm.norm"
    roles[out] = "ssm.out"
    return out + 1


def _assign_parallel_mixers(symbols: str, roles: Roles, start: int, end: int) -> None:
    """Assign a state-space part and the attention that processes the same input after it."""
    attention = symbols.index("C", start)
    products = [at for at in range(start, attention) if symbols[at] == "M"]
    out = products[0] if products else attention
    for at in range(start, out):
        roles[at] = roles[at] or ("ssm.conv" if symbols[at] == "V" else "ssm.core")
    for at in products:
        roles[at] = "ssm.out" if at == out else "attn.qkv"
    _assign_light_units(symbols, roles, products[1] if len(products) > 1 else out, attention)
    _fill_role(roles, attention, end, "attn.core")


def _assign_between(symbols: str, roles: Roles, out: int, has_post_norm: bool) -> int:
    """Assign residual sums and norms between mixer and feed-forward; return where the latter begins."""
    feed = next((at for at in range(out, len(symbols)) if symbols[at] in "MXGb"), len(symbols))
    norms = list_positions(symbols, "N", out, feed)
    for at in _list_sums(symbols, out, feed):
        roles[at] = "residual"
    for at in norms:
        is_post_norm = symbols[at + 1 : at + 2] == "a" or has_post_norm or at != norms[-1]
        roles[at] = "attn.post_norm" if is_post_norm else "mlp.norm"
    return feed


def _list_sums(symbols: str, start: int, end: int) -> list[int]:
    """List the sums of a part, up to a mean or a power: those after one are of a norm in several kernels."""
    stop = next(iter(list_positions(symbols, "rp", start, end)), end)
    return list_positions(symbols, "a", start, stop)


def _assign_layer_end(symbols: str, roles: Roles, feed: int) -> int:
    """Assign norms and the residual sum at the end of the layer; return where they begin."""
    last = max(list_positions(symbols, "MXU", feed, len(symbols)), default=feed)
    norms = list_positions(symbols, "N", last + 1, len(symbols))
    for at in norms:
        roles[at] = "mlp.post_norm"
    sums = _list_sums(symbols, last + 1, len(symbols))
    if set(symbols[feed:]) & set(EXPERTS):
        sums = list_positions(symbols, "a", last + 1, len(symbols))[-1:]
    for at in sums:
        roles[at] = "residual"
    return min([*norms, *sums, len(symbols)])


def _assign_dense_feed_forward(symbols: str, roles: Roles, feed: int, close: int) -> None:
    """Assign the feed-forwards of a layer: one, or several of them, one after the other."""
    products = list_positions(symbols, "M", feed, close)
    if len(products) < 2:
        return
    _fill_norms(symbols, roles, products[0], products[-1], "mlp.norm")
    activations = list_positions(symbols, ACTIVATIONS, products[0], products[-1])
    norms = list_positions(symbols, "N", products[0], products[-1])
    parts = list(pairwise([products[0], *norms, close])) if norms else []
    complete = [part for part in parts if _FEED_FORWARD.search(symbols, *part)]
    if (
        complete and len(parts) > 1
    ):  # a part without activation is other work, as attention that samples a grid
        for start, end in parts if len(activations) > 1 else complete:
            if symbols[start + 1 : start + 2] != "a":
                _assign_dense_feed_forward(symbols, roles, start, end)
    elif len(activations) > 1:
        _assign_stacked_feed_forwards(symbols, roles, [*products, close], activations)
    else:
        _assign_feed_forward(symbols, roles, products, close)


def _assign_feed_forward(symbols: str, roles: Roles, products: list[int], close: int) -> None:
    activation = next((at for at in range(products[0], close) if symbols[at] in ACTIVATIONS), None)
    gated = None if activation is None else _find_gate_end(symbols, activation)
    if gated is not None:
        down = next(at for at in [*products, close] if at > gated or at == products[-1])
        products = [at for at in products if at <= down]  # what follows projects the sum of a shared block
    for at, role in zip(products, _list_product_roles(symbols, products, activation), strict=False):
        roles[at] = role
    _fill_role(roles, products[0], products[-1], "mlp.act")
    roles[products[-1]] = "mlp.down"


def _find_gate_end(symbols: str, activation: int) -> int | None:
    """Return the position at which an activation or the product after it is multiplied, or None."""
    after = symbols[activation + 1 : activation + 3]
    return activation + after.index("x") + 1 if after[:1] == "x" or after == "Mx" else None


def _assign_stacked_feed_forwards(symbols: str, roles: Roles, products: list[int], acts: list[int]) -> None:
    """Assign several feed-forwards, one after the other: products with an activation between them."""
    for at, following in pairwise(products):
        if symbols[following : following + 1] == "M" and any(at < act < following for act in acts):
            roles[at], roles[following] = "mlp.up", "mlp.down"
            _fill_role(roles, at, following, "mlp.act")


def _list_product_roles(symbols: str, products: list[int], activation: int | None) -> list[str]:
    """List the roles of the products before the last one."""
    before = len(products) - 1
    if before >= 2:
        return ["mlp.gate", *["mlp.up"] * (before - 1)]
    if activation is None:
        return ["mlp.up"]
    is_gated = symbols[activation] == "B" or symbols[activation + 1 : products[-1]] == "x"
    return ["mlp.gate_up" if is_gated else "mlp.up"]


def _assign_experts(symbols: str, roles: Roles, start: int, end: int) -> None:
    """Assign router, dispatch, experts, combination and shared expert of a mixture of experts."""
    router, chosen = _find_router(symbols, start, end)
    called = next(iter(list_positions(symbols, "U", chosen, end)), chosen)
    shared = list_positions(symbols, "M", chosen, called)
    if len(shared) > 1 and list_positions(symbols, "MXb", called, end):
        _fill_role(roles, shared[0], shared[-1] + 1, "moe.shared")  # it runs before the experts are called
        chosen = shared[-1] + 1
    up, down = _find_experts(symbols, chosen, end)
    _fill_norms(symbols, roles, start, router, "mlp.norm")
    _fill_role(roles, symbols.rfind("N", start, router) + 1 or start, router, "moe.shared")
    dispatch = list_positions(symbols, "U", chosen, up[0] if up else end)
    stop = dispatch[0] if dispatch else chosen
    _fill_role(roles, router, stop, "moe.router")
    if not up:
        _fill_role(roles, stop, end, "moe.experts")
        return
    _fill_role(roles, stop, up[0], "moe.dispatch")
    for at in up:
        roles[at] = "moe.experts.up" if down else "moe.experts"
    for at in down:
        roles[at] = "moe.experts.down"
    last = (down or up)[-1]
    _fill_role(roles, up[0], last, "moe.experts.act")
    _assign_shared_expert(symbols, roles, last + 1, end)


def _find_router(symbols: str, start: int, end: int) -> tuple[int, int]:
    """Find the product of the router, and the position after the choice of experts."""
    choices = list_positions(symbols, "G", start, end)
    first = choices[0] if choices else list_positions(symbols, EXPERTS, start, end)[0]
    products = list_positions(symbols, "Mb", start, first)
    router = products[-1] if products else first
    if not choices:
        return router, first
    last = choices[-1] + 1
    while last < end and symbols[last] in "srxaodcj":
        last += 1
    return router, last


def _find_experts(symbols: str, start: int, end: int) -> tuple[list[int], list[int]]:
    """Find the first and the second products of the experts."""
    grouped = list_positions(symbols, "X", start, end)
    if not grouped:
        batched = list_positions(symbols, "b", start, end)  # single products beside them: a shared expert
        runs = _group_adjacent(batched if len(batched) > 1 else list_positions(symbols, "Mb", start, end))
        return (runs[0] if runs else []), (runs[1] if len(runs) > 1 else [])
    activations = list_positions(symbols, ACTIVATIONS, grouped[0], grouped[-1])
    if activations:
        return [at for at in grouped if at < activations[0]], [at for at in grouped if at > activations[0]]
    half = (len(grouped) + 1) // 2
    return grouped[:half], grouped[half:]


def _group_adjacent(positions: list[int]) -> list[list[int]]:
    runs = groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0])
    return [[at for _, at in run] for _, run in runs]


def _assign_shared_expert(symbols: str, roles: Roles, start: int, end: int) -> None:
    """Assign what follows the experts: products are the shared expert's, the rest combines."""
    products = list_positions(symbols, "Mb", start, end)
    if products:
        _fill_role(roles, start, products[0], "moe.combine")
        _fill_role(roles, products[0], products[-1] + 1, "moe.shared")
    _fill_role(roles, start, end, "moe.combine")


def assign_outside_roles(symbols: str, first: int, last: int, *, has_pooling: bool) -> dict[int, str]:
    """Assign the embedding before the layers, and final norm, lm_head and sampling after them, by unit."""
    roles = dict.fromkeys(list_positions(symbols, "Ev", 0, first), "embed")
    sampling = list_positions(symbols, "Z", last, len(symbols))
    roles.update(dict.fromkeys(sampling, "sample"))
    products = list_positions(symbols, "M", last, sampling[0] if sampling else len(symbols))
    norms = list_positions(symbols, "N", last, products[0] if products else len(symbols))
    if products and not has_pooling and _is_output_head(symbols, products[-1]):
        roles[products[-1]] = "lm_head"
    roles.update(dict.fromkeys(norms[:1], "final_norm"))
    return roles


def _is_output_head(symbols: str, at: int) -> bool:
    """Whether a product has no activation behind it, nor, but for a norm, before it."""
    return not set(symbols[at + 1 : at + 2]) & set(ACTIVATIONS) and not _ACTIVATED.search(symbols, 0, at)
