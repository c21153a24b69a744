"""Roles of the units of a mixture-of-experts feed-forward."""

from typing import Final

from capture.classify.block_signs import ACTS

_ROUTING: Final = "GUX"

Roles = list[str | None]


def name_experts(signs: str, roles: Roles, start: int, end: int) -> None:
    """Give roles to the units from start to end: router, dispatch, experts, combination, shared expert."""
    router, chosen = _find_router(signs, start, end)
    up, down = _find_experts(signs, chosen, end)
    for at in range(start, router):
        roles[at] = roles[at] or "moe.shared"
    dispatch = next((at for at in range(chosen, up[0] if up else end) if signs[at] == "U"), None)
    stop = dispatch if dispatch is not None else chosen
    for at in range(router, stop):
        roles[at] = roles[at] or "moe.router"
    if not up:
        for at in range(stop, end):
            roles[at] = roles[at] or "moe.experts"
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
    choices = [at for at in range(start, end) if signs[at] == "G"]
    first = choices[0] if choices else next(at for at in range(start, end) if signs[at] in _ROUTING)
    products = [at for at in range(start, first) if signs[at] in "Mb"]
    router = products[-1] if products else first
    last = choices[-1] + 1 if choices else first
    while last < end and signs[last] in "srxaodcj" and choices:
        last += 1
    return router, last


def _find_experts(signs: str, start: int, end: int) -> tuple[list[int], list[int]]:
    """Return the places of the experts' first and second products."""
    grouped = [at for at in range(start, end) if signs[at] == "X"]
    if grouped:
        act = next((at for at in range(grouped[0], grouped[-1]) if signs[at] in ACTS), None)
        if act is not None:
            return [at for at in grouped if at < act], [at for at in grouped if at > act]
        half = (len(grouped) + 1) // 2
        return grouped[:half], grouped[half:]
    runs = _runs(signs, start, end)
    return (runs[0] if runs else []), (runs[1] if len(runs) > 1 else [])


def _runs(signs: str, start: int, end: int) -> list[list[int]]:
    """Return the places of products in runs without anything between them."""
    runs: list[list[int]] = []
    for at in range(start, end):
        if signs[at] not in "Mb":
            continue
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _name_shared(signs: str, roles: Roles, start: int, end: int) -> None:
    """Name what follows the experts: products are the shared expert's, the rest combines."""
    products = [at for at in range(start, end) if signs[at] in "Mb"]
    if products:
        _fill(roles, start, products[0], "moe.combine")
        _fill(roles, products[0], products[-1] + 1, "moe.shared")
    _fill(roles, start, end, "moe.combine")
