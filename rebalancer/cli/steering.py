"""What each command makes of the brakes: pure changes of the control object's content, and how it is told.

Whoever writes it is elsewhere. A change that would silently not do what was said is refused with what to say instead.
"""

from __future__ import annotations

from dataclasses import replace

from rebalancer.cli.exits import Code, Refused
from rebalancer.core.facts import Control
from rebalancer.core.units import Mode, PlanId, PoolName

APPROVALS = 64
"""Approvals kept: a decision is valid for minutes, so that older ones are long over."""


def paused(control: Control, pool: PoolName, by: str, why: str) -> Control:
    """The brakes with one pool, or everything, paused."""
    if not pool:
        return replace(control, paused=True, by=by, why=why)
    return replace(control, paused_pools=_with(control.paused_pools, pool), by=by, why=why)


def recalled(control: Control, node: str, pool: PoolName, by: str, why: str) -> Control:
    """The brakes with a node, a pool, or everything called home until it is resumed."""
    if node:
        return replace(control, recall_nodes=_with(control.recall_nodes, node), by=by, why=why)
    if pool:
        return replace(control, recall_pools=_with(control.recall_pools, pool), by=by, why=why)
    return replace(control, recall_all=True, by=by, why=why)


def resumed(
    control: Control, by: str, why: str, *, node: str = "", pool: PoolName = "", every: bool = False
) -> Control:
    """The brakes with pauses and recalls ended: of one node, of one pool, or all; ``every`` ends retirement too.

    Raises:
        Refused: what was named cannot go while something wider holds it.
    """
    if control.retired and not every:
        raise Refused("it is being retired and lends nothing; `resume --all` ends that as well", Code.UNSAFE)
    if (node or pool) and control.recall_all:
        raise Refused("everything is recalled; resume without a name, then recall the others", Code.UNSAFE)
    if pool and control.paused:
        raise Refused("everything is paused; resume without --pool, then pause the other pools", Code.UNSAFE)
    if node:
        return replace(control, recall_nodes=_without(control.recall_nodes, node), by=by, why=why)
    if pool:
        left = _without(control.paused_pools, pool), _without(control.recall_pools, pool)
        return replace(control, paused_pools=left[0], recall_pools=left[1], by=by, why=why)
    return replace(
        control, paused=False, paused_pools=(), recall_all=False, recall_nodes=(), recall_pools=(), retired=False,
        by=by, why=why,
    )  # fmt: skip


def approved(control: Control, plan: PlanId, by: str, why: str) -> Control:
    """The brakes with one more approval, the oldest beyond the bound forgotten."""
    kept = (*_without(control.approved, plan), plan)
    return replace(control, approved=kept[-APPROVALS:], by=by, why=why)


def moded(control: Control, pool: PoolName, mode: Mode | None, by: str, why: str) -> Control:
    """The brakes with this pool's mode set; None leaves it to the policy."""
    modes = {name: held for name, held in control.modes.items() if name != pool}
    return replace(control, modes=modes if mode is None else {**modes, pool: mode}, by=by, why=why)


def standing(control: Control) -> str:
    """What holds now, for the person who changed it."""
    parts = [
        "being retired" if control.retired else "",
        "everything is paused" if control.paused else _list("paused", control.paused_pools),
        "everything is recalled" if control.recall_all else _list("recalled pools", control.recall_pools),
        _list("recalled nodes", control.recall_nodes),
        "" if control.max_loans is None else f"at most {control.max_loans} loans",
        _list("modes", tuple(f"{pool}={mode}" for pool, mode in sorted(control.modes.items()))),
    ]
    return ", ".join(part for part in parts if part) or "nothing is paused or recalled"


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(sorted({*names, name}))


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(one for one in names if one != name)


def _list(what: str, names: tuple[str, ...]) -> str:
    return f"{what}: {' '.join(names)}" if names else ""
