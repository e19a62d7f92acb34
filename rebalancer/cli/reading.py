"""Commands that only read: status, pools, loans, decisions.

From Kafka or a tapped folder, through the store. They show and never judge; a table may leave out what does not
fit, its JSON leaves out nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rebalancer.adapters import words
from rebalancer.cli import steering
from rebalancer.cli.options import Cluster, Config, From, Json, Kafka, Source, source
from rebalancer.cli.output import put, put_json, put_table
from rebalancer.core.facts import Control
from rebalancer.core.instructions import PoolState
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Plan, Result
from rebalancer.core.reasons import sentence
from rebalancer.core.stimuli import OutcomeReported

if TYPE_CHECKING:
    from rebalancer.adapters.store import Store

WITHOUT_PODS = ("nodes", "control", "pools", "loans", "plans", "alerts")
DECISIONS = ("plans", "outcomes")


def status(
    *, from_: From = None, json: Json = False, config: Config = None, kafka: Kafka = "", cluster: Cluster = ""
) -> None:
    """Say how things stand: nodes, loans, brakes, alerts, the last decision."""
    store = source(from_, config, kafka, cluster).load(*WITHOUT_PODS)
    told = standing(store)
    if json:
        put_json(told)
        return
    put_table(("what", "how it stands"), [(key.replace("_", " "), _said(value)) for key, value in told.items()])


def standing(store: Store) -> dict[str, Any]:
    """The facts of `status`, by stable key."""
    held = [loan for loan in store.loans.values() if loan.open and not loan.virtual]
    overdue = [loan.id for loan in held if store.latest is not None and loan.due < store.latest]
    control, last = store.control, next(iter(store.recent(1)), None)
    return {
        "at": store.latest,
        "pools": len(store.pools),
        "nodes": len(store.nodes),
        "gpus": sum(node.gpus for node in store.nodes.values()),
        "loans_open": len(held),
        "gpus_lent": sum(loan.gpus for loan in held),
        "loans_in_shadow": sum(loan.open and loan.virtual for loan in store.loans.values()),
        "loans_overdue": sorted(overdue),
        "paused": bool(control and control.paused),
        "paused_pools": list(control.paused_pools) if control else [],
        "brakes": steering.standing(control or Control()),
        "alerts": [
            {"id": one.id, "severity": one.severity, "sentence": sentence(one.because)} for one in _alerts(store)
        ],
        "last_decision": None
        if last is None
        else {"id": last.id, "at": last.made_at, "sentence": sentence(last.because)},
        "unread": dict(store.unread),
    }


def pools(
    *, from_: From = None, json: Json = False, config: Config = None, kafka: Kafka = "", cluster: Cluster = ""
) -> None:
    """Show every pool: owned, held, lent, demand, and idle GPU-hours by what kept them from being lent."""
    store = source(from_, config, kafka, cluster).load("pools")
    found = sorted(store.pools.values(), key=lambda pool: pool.pool)
    if json:
        put_json(found)
        return
    columns = ("pool", "mode", "#owned", "#held", "#idle", "#unknown", "#lent", "#borrowed", "#demand", "window")
    rows = [_pool_row(pool) for pool in found]
    put_table((*columns, "idle GPU-hours by blocker"), rows, empty="no pool has been reported yet")


def loans(
    *,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    from_: From = None,
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Show the loans that are out, by due time."""
    store = source(from_, config, kafka, cluster).load("loans")
    found = sorted((loan for loan in store.loans.values() if every or loan.open), key=lambda loan: (loan.due, loan.id))
    if json:
        put_json(found)
        return
    columns = ("loan", "node", "lender", "gang", "#GPUs", "phase", "opened", "due", "closed", "why")
    put_table(columns, [_loan_row(loan) for loan in found], empty="no loan is out")


def decisions(
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="How many of the latest; 0 is all.")] = 20,
    pool: Annotated[str, typer.Option("--pool", help="Only those for this pool.")] = "",
    from_: From = None,
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """List decisions, newest last, with their sentence and how far they came."""
    where = source(from_, config, kafka, cluster)
    if follow:
        asyncio.run(_follow(where, count, pool, json))
        return
    store = where.load(*DECISIONS)
    found = _latest(store, count, pool)
    if json:
        put_json([decision(store, plan) for plan in found])
        return
    columns = ("at", "id", "pool", "method", "mode", "outcome", "sentence")
    put_table(columns, [_plan_row(store, plan) for plan in found], empty="no decision yet")


def decision(store: Store, plan: Plan) -> dict[str, Any]:
    """A plan with its sentence and outcomes, by stable key."""
    return {"sentence": sentence(plan.because), "plan": plan, "outcomes": store.results(plan)}


async def _follow(where: Source, count: int, pool: str, json: bool) -> None:
    store = await where.aload(*DECISIONS)
    for plan in _latest(store, count, pool):
        _tell(store, plan, json)
    async for record in where.follow(*DECISIONS):
        told = store.feed(record)
        shown = changed(store, told.content if told else None, every=json)
        if shown is not None and pool in ("", shown.pool):
            _tell(store, shown, json)


def changed(store: Store, content: object, *, every: bool) -> Plan | None:
    """The decision that is to be shown anew; that a step began alters nothing in its line."""
    if isinstance(content, OutcomeReported):
        shown = every or content.outcome.result is not Result.STARTED
        return store.plans.get(content.outcome.plan) if shown else None
    return content if isinstance(content, Plan) else None


def _tell(store: Store, plan: Plan, json: bool) -> None:
    if json:
        put_json(decision(store, plan), line=True)
    else:
        put("  ".join(_plan_row(store, plan)))


def _latest(store: Store, count: int, pool: str) -> list[Plan]:
    found = [plan for plan in store.recent() if pool in ("", plan.pool)]
    return list(reversed(found[: count or len(found)]))


def _plan_row(store: Store, plan: Plan) -> tuple[str, ...]:
    done = words.progress(plan, store.results(plan)).removeprefix("outcome: ")
    return (words.moment(plan.made_at), plan.id, plan.pool, plan.method, plan.mode, done, sentence(plan.because))


def _pool_row(pool: PoolState) -> tuple[str, ...]:
    counts = (pool.owned, pool.held, pool.idle, pool.unknown, pool.lent, pool.borrowed)
    hours = sorted(pool.idle_gpu_hours.items(), key=lambda item: (-item[1], item[0]))
    kept = ", ".join(f"{why} {spent:.1f}" for why, spent in hours if spent >= 0.05)
    window = "open" if pool.window_open else "shut"
    return (pool.pool, pool.mode, *map(str, counts), f"{pool.demand:.1f}", window, kept or "none")


def _loan_row(loan: Loan) -> tuple[str, ...]:
    closed = words.moment(loan.closed_at) if loan.closed_at else ""
    shadow = " (shadow)" if loan.virtual else ""
    times = (words.moment(loan.opened_at), words.moment(loan.due), closed)
    names = (loan.id, loan.node_name, loan.lender, loan.gang, str(loan.gpus), loan.phase + shadow)
    return (*names, *times, sentence(loan.because))


def _alerts(store: Store) -> list[Any]:
    return sorted(store.alerts.values(), key=lambda alert: (alert.severity, alert.id))


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return value.get("sentence") or ", ".join(f"{key} {count}" for key, count in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(_said(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return words.moment(value) if hasattr(value, "astimezone") else "none" if value is None else str(value)
