"""Roles of the units of one layer, from their places around the mixer, the norms and the activation."""

import re
from functools import lru_cache
from typing import Final

from capture.classify.block_signs import ACTS, EXPERTS, find_state_output
from capture.classify.moe_roles import name_experts

_ALWAYS: Final = {"m": "comm", "q": "quantize", "K": "attn.kv", "R": "attn.rope"}

Roles = list[str | None]

# role → op as the rest of the project writes it; a role that is not here is its own op
_OPS: Final = {
    "attn.norm": "norm", "attn.post_norm": "norm", "attn.qk_norm": "norm", "mlp.norm": "norm",
    "mlp.post_norm": "norm", "ssm.norm": "norm", "final_norm": "norm", "comm": None,
}  # fmt: skip


def op_of(role: str | None) -> str | None:
    """Return the op for a role; None for a role that is no op (communication) and for None."""
    return None if role is None else _OPS.get(role, role)


@lru_cache(maxsize=1 << 11)
def name_block(signs: str, mixer: tuple[int, int], post_norm: bool) -> tuple[str | None, ...]:
    """Return the role of each unit of a layer; None where its place does not tell.

    `mixer` is the place of the attention or state-space part. With `post_norm` a norm belongs to
    what stands before it.
    """
    roles: Roles = [_ALWAYS.get(sign) for sign in signs]
    start, end = mixer
    attends = signs[start] == "C"
    _name_before(signs, roles, start, "attn" if attends else "ssm")
    if not attends and "C" in signs[start:end]:
        _name_parallel(signs, roles, start, end)
        out = _attention_out(signs, roles, end)
    elif attends:
        _fill(roles, start, end, "attn.core")
        out = _attention_out(signs, roles, end)
    else:
        out = _state_out(signs, roles, start, end)
    feed = _name_between(signs, roles, out, post_norm)
    close = _name_close(signs, roles, feed)
    if set(signs[feed:close]) & set(EXPERTS):
        name_experts(signs, roles, feed, close)
    else:
        _name_dense(signs, roles, feed, close)
    return tuple(roles)


@lru_cache(maxsize=1 << 11)
def count_feeds(signs: str, roles: tuple[str | None, ...]) -> int:
    """Return how many feed-forwards a layer holds: stretches between norms with activation and products."""
    bare = "".join(
        " " if role and role.startswith(("ssm.", "attn.core")) else sign
        for sign, role in zip(signs, roles, strict=True)
    )
    return sum(
        bool(set(part) & {*ACTS, *EXPERTS}) and sum(sign in "MXb" for sign in part) >= 2
        for part in bare.split("N")
    )


def _fill(roles: Roles, start: int, end: int, role: str) -> None:
    """Give a role to the units from start to end that have none."""
    for at in range(start, end):
        roles[at] = roles[at] or role


def _name_before(signs: str, roles: Roles, mixer: int, part: str) -> None:
    """Name what stands before the mixer: norm, input products, norms of q and k, rope, cache."""
    first = next((at for at in range(mixer) if signs[at] in "Mb"), mixer)
    for at in range(mixer):
        if signs[at] == "N":
            roles[at] = "attn.norm" if at < first else ("attn.qk_norm" if part == "attn" else "ssm.norm")
        elif signs[at] in "Mb":
            roles[at] = "attn.qkv" if part == "attn" else "ssm.in"
    if part == "ssm":
        _fill(roles, first, mixer, "ssm.core")
        return
    for match in re.finditer(r"[xagdjceroU]+", signs[first:mixer]):
        _name_rope(signs, roles, first + match.start(), first + match.end(), first + match.end() == mixer)


def _name_rope(signs: str, roles: Roles, start: int, end: int, touches: bool) -> None:
    """Name a run of light units before attention: rotation of q and k, then growth of the cache.

    `touches` says that the run ends at the attention itself.
    """
    run = signs[start:end]
    turned = _rotation(run)
    for at, sign in enumerate(run):
        if at < turned:
            role = "attn.rope"
        elif sign == "j":
            role = "attn.kv"
        else:
            role = "attn.core" if touches and sign in "cx" and "j" in run else "attn.copy"
        roles[start + at] = roles[start + at] or role


def _rotation(run: str) -> int:
    """Return how many units at the start of a run rotate q and k; 0 when none do."""
    if "x" not in run or not set(run) & set("gd"):
        return 0
    turned = run.rfind("a") + 1
    joins = len(run[turned:]) - len(run[turned:].lstrip("j"))
    if re.search(r"d.*aj", run):
        return turned + min(1, joins)  # each rotated half is joined after its sum
    return turned + joins - 2 if joins >= 4 and turned else turned  # the last two joins grow the cache


def _attention_out(signs: str, roles: Roles, end: int) -> int:
    """Name the output product after attention; return the place after it."""
    first = signs.find("M", end)
    if first < 0:
        return end
    _fill(roles, end, first, "attn.core")
    last = _last_output(signs, first)
    for at in range(first, last + 1):
        roles[at] = roles[at] or "attn.out"
    return last + 1


def _last_output(signs: str, first: int) -> int:
    """Return the last product of attention's output, of which the first is given."""
    stop = re.compile(f"[NaGX{ACTS}]|$").search(signs, first)
    last = signs.rfind("M", first, stop.start() if stop else len(signs))
    following = signs.find("M", last + 1)
    between = signs[last + 1 :] if following < 0 else signs[last + 1 : following]
    beside = "N" not in between and (following < 0 or set(between) & set(ACTS))
    return first if beside else last  # feed-forward beside attention, without a norm between them


def _state_out(signs: str, roles: Roles, start: int, end: int) -> int:
    """Name a state-space mixer and its output product; return the place after it."""
    output = find_state_output(signs, end)
    products = [at for at in range(end, len(signs)) if signs[at] == "M"]
    if not products:
        _fill(roles, start, end, "ssm.core")
        return end
    out = products[-1] if output is None else output
    names = {"M": "ssm.in", "V": "ssm.conv"}
    for at in range(start, out):
        before_product = signs[at] == "N" and "M" in signs[at:out]
        roles[at] = roles[at] or ("ssm.norm" if before_product else names.get(signs[at], "ssm.core"))
    if signs[out - 1] == "N":
        roles[out - 1] = "ssm.norm"
    roles[out] = "ssm.out"
    return out + 1


def _name_parallel(signs: str, roles: Roles, start: int, end: int) -> None:
    """Name a state-space part and the attention that runs beside it on the same input."""
    attention = signs.index("C", start)
    products = [at for at in range(start, attention) if signs[at] == "M"]
    out = products[0] if products else attention
    for at in range(start, out):
        roles[at] = roles[at] or ("ssm.conv" if signs[at] == "V" else "ssm.core")
    for at in products:
        roles[at] = "ssm.out" if at == out else "attn.qkv"
    for match in re.finditer(r"[xagdjceroU]+", signs[out:attention]):
        a, b = out + match.start(), out + match.end()
        _name_rope(signs, roles, a, b, b == attention)
    _fill(roles, attention, end, "attn.core")


def _name_between(signs: str, roles: Roles, out: int, post_norm: bool) -> int:
    """Name residual sums and norms between the mixer and the feed-forward; return where that begins."""
    feed = next((at for at in range(out, len(signs)) if signs[at] in "MXGb"), len(signs))
    norms = [at for at in range(out, feed) if signs[at] == "N"]
    for at in range(out, feed):
        if signs[at] == "a":
            roles[at] = "residual"
    for at in norms:
        after = signs[at + 1 : at + 2] == "a" or post_norm or at != norms[-1]
        roles[at] = "attn.post_norm" if after else "mlp.norm"
    return feed


def _name_close(signs: str, roles: Roles, feed: int) -> int:
    """Name norms and the residual sum at the end of the layer; return where they begin."""
    last = max((at for at in range(feed, len(signs)) if signs[at] in "MXU"), default=feed)
    norms = [at for at in range(last + 1, len(signs)) if signs[at] == "N"]
    for at in norms:
        roles[at] = "mlp.post_norm"
    sums = [at for at in range(last + 1, len(signs)) if signs[at] == "a"]
    dense = not set(signs[feed:]) & set(EXPERTS)
    for at in sums if dense else sums[-1:]:
        roles[at] = "residual"
    return min([*norms, *(sums if dense else sums[-1:]), len(signs)])


def _name_dense(signs: str, roles: Roles, feed: int, close: int) -> None:
    """Name the products and the activation of a dense feed-forward."""
    products = [at for at in range(feed, close) if signs[at] == "M"]
    if len(products) < 2:
        return
    act = next((at for at in range(products[0], close) if signs[at] in ACTS), None)
    for at, role in zip(products, _product_roles(signs, products, act), strict=False):
        roles[at] = role
    _fill(roles, products[0], products[-1], "mlp.act")
    roles[products[-1]] = "mlp.down"


def _product_roles(signs: str, products: list[int], act: int | None) -> list[str]:
    """Return the roles of the products before the last one."""
    before = len(products) - 1
    if before >= 2:
        return ["mlp.gate", *["mlp.up"] * (before - 1)]
    if act is None:
        return ["mlp.up"]
    gated = signs[act] == "B" or signs[act + 1 : products[-1]] == "x"
    return ["mlp.gate_up" if gated else "mlp.up"]
