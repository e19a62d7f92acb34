"""The brakes by hand: pause, resume, recall, approve. Each is a record on Kafka that says who and why.

Recalls and approvals are requests on the control topic; pause and resume are the brakes' own state, a fact like
those of a cluster's control object, made from the latest one so that nothing else in it is lost. Nothing takes
effect here: the roles act on what they read.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
import typer

from rebalancer.cli import doors
from rebalancer.cli.exits import Code, Refused, say
from rebalancer.cli.options import Cluster, Config, Json, Kafka, Source, settings
from rebalancer.cli.output import put_json
from rebalancer.core.facts import Control
from rebalancer.core.reasons import sentence
from rebalancer.core.stimuli import Approved, RecallRequested
from rebalancer.settings import Settings

if TYPE_CHECKING:
    from rebalancer.adapters.store import Store
    from rebalancer.wire.envelope import Record

Why = Annotated[str, typer.Option("--why", help="Told to everyone who asks later.")]
By = Annotated[str, typer.Option("--by", help="Who asks; by default user@host.")]
Pool = Annotated[str, typer.Option("--pool", help="Only this pool; everything otherwise.")]


def pause(
    *,
    pool: Pool = "",
    why: Why = "",
    by: By = "",
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Stop lending and load-driven recalls, of one pool or all; due times and waiting pods still bring nodes home."""
    held = settings(config, kafka, cluster)
    store = Source(None, held).load("control", "pools")
    known(pool, store.pools, "pool")
    _brake(held, paused(store.control or Control(), pool, by or whoami(), why), json)


def resume(
    *,
    pool: Pool = "",
    why: Why = "",
    by: By = "",
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Undo `pause`: for one pool, or for all with every pool paused by itself."""
    held = settings(config, kafka, cluster)
    store = Source(None, held).load("control", "pools")
    known(pool, store.pools, "pool")
    _brake(held, resumed(store.control or Control(), pool, by or whoami(), why), json)


def recall(
    *,
    node: Annotated[str, typer.Option("--node", help="Bring this node home.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="Bring all nodes of this pool home.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Bring every lent node home.")] = False,
    by: By = "",
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Ask for lent nodes to come home now: one node, a pool, or all. Gangs leave whole and with their notice."""
    if sum((bool(node), bool(pool), every)) != 1:
        raise typer.BadParameter("say exactly one of --node, --pool and --all")
    held = settings(config, kafka, cluster)
    if not every:
        store = Source(None, held).load("nodes", "pools")
        known(pool, store.pools, "pool")
        known(node, {name for one in store.nodes.values() for name in (one.name, one.uid)}, "node")
    scope: Literal["node", "pool", "all"] = "node" if node else "pool" if pool else "all"
    asked = RecallRequested(scope, node or pool, by or whoami(), datetime.now(UTC))
    _told(held, doors.ask(held, asked), json)


def approve(
    *,
    plan: Annotated[str, typer.Argument(help="Id of a decision that waits for approval.")],
    by: By = "",
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Let a decision be carried out that the circuit breaker holds."""
    held = settings(config, kafka, cluster)
    waiting(Source(None, held).load("plans"), plan, datetime.now(UTC))
    _told(held, doors.ask(held, Approved(plan, by or whoami(), datetime.now(UTC))), json)


def paused(control: Control, pool: str, by: str, why: str) -> Control:
    """The brakes with one pool, or everything, paused."""
    if not pool:
        return replace(control, paused=True, by=by, why=why)
    return replace(control, paused_pools=tuple(sorted({*control.paused_pools, pool})), by=by, why=why)


def resumed(control: Control, pool: str, by: str, why: str) -> Control:
    """The brakes with one pool going again, or everything; one pool cannot go while everything is paused."""
    if not pool:
        return replace(control, paused=False, paused_pools=(), by=by, why=why)
    if control.paused:
        raise Refused("everything is paused; resume without --pool, then pause the other pools", Code.UNSAFE)
    return replace(control, paused_pools=tuple(one for one in control.paused_pools if one != pool), by=by, why=why)


def waiting(store: Store, plan: str, now: datetime) -> None:
    """Refuse unless the plan waits for approval and is still valid."""
    known(plan, store.plans, "decision")
    held = store.plans[plan]
    if not held.awaits_approval:
        raise Refused(f"{plan} does not wait for approval: {sentence(held.because)}")
    if held.valid_until <= now:
        raise Refused(f"{plan} was valid until {held.valid_until:%Y-%m-%d %H:%M}Z; it is made again if still needed")


def known(name: str, names: Collection[str], what: str) -> None:
    """Refuse a name that nobody has reported; "" and a cluster that has reported nothing pass."""
    if not name or name in names or not names:
        return
    near = get_close_matches(name, sorted(names), n=3)
    raise Refused(f"no {what} is called {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))


def whoami() -> str:
    """user@host, for the audit."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _brake(held: Settings, control: Control, json: bool) -> None:
    _told(held, doors.brake(held, control, datetime.now(UTC)), json)


def _told(held: Settings, record: Record, json: bool) -> None:
    if json:
        put_json({"topic": record.topic, "cluster": held.cluster, "record": orjson.loads(record.value or b"null")})
    else:
        say(f"asked on {record.topic} at {held.kafka.bootstrap}; `rebalancer decisions --follow` shows what follows")
