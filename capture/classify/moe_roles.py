"""Roles of the units of a mixture-of-experts feed-forward."""

from typing import Final

from capture.classify.block_signs import ACTS, places_of

_ROUTING: Final = "GUX"

Roles = list[str | None]


def name_experts(signs: str, roles: Roles, start: int, end: int) -> None:
    """Give roles to the units from start to end: router, dispatch, experts, combination, shared expert."""
    router, chosen = _find_router(signs, start, end)
    up, down = _find_experts(signs, chosen, end)
    _fill(roles, start, router, "moe.shared")
    dispatch = places_of(signs, "U", chosen, up[0] if up else end)
    stop = dispatch[0] if dispatch else chosen
    _fill(roles, router, stop, "moe.router")
    if not up:
        _fill(roles, stop, end, "moe.experts")
        return
    _fill(roles, stop, up[0], "moe.dispatch")
    for at in up:
        roles[at] = "moe.experts.up" if down else "moe.experts"
    for at in down:
        roles[at] = "moe.experts.down"
    last = (down or up)[-1]
    _fill(roles, up[0], last, "moe.experts.act")
    _name_shared(signs, roles, last + 1, end)


def _fill(roles: Roles, start: int, end: int, role: str) -> None:
    for at in range(start, end):
        roles[at] = roles[at] or role


def _find_router(signs: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of the router's product and the place after the choice of experts."""
    choices = places_of(signs, "G", start, end)
    first = choices[0] if choices else places_of(signs, _ROUTING, start, end)[0]
    products = places_of(signs, "Mb", start, first)
    router = products[-1] if products else first
    if not choices:
        return router, first
    last = choices[-1] + 1
    while last < end and signs[last] in "srxaodcj":
        last += 1
    return router, last


def _find_experts(signs: str, start: int, end: int) -> tuple[list[int], list[int]]:
    """Return the places of the experts' first and second products."""
    grouped = places_of(signs, "X", start, end)
    if not grouped:
        runs = _runs(places_of(signs, "Mb", start, end))
        return (runs[0] if runs else []), (runs[1] if len(runs) > 1 else [])
    acts = places_of(signs, ACTS, grouped[0], grouped[-1])
    if acts:
        return [at for at in grouped if at < acts[0]], [at for at in grouped if at > acts[0]]
    half = (len(grouped) + 1) // 2
    return grouped[:half], grouped[half:]


def _runs(products: list[int]) -> list[list[int]]:
    """Return the places of products in runs without anything between them."""
    runs: list[list[int]] = []
    for at in products:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _name_shared(signs: str, roles: Roles, start: int, end: int) -> None:
    """Name what follows the experts: products are the shared expert's, the rest combines."""
    products = places_of(signs, "Mb", start, end)
    if products:
        _fill(roles, start, products[0], "moe.combine")
        _fill(roles, products[0], products[-1] + 1, "moe.shared")
    _fill(roles, start, end, "moe.combine")
