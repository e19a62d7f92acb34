"""The brakes by hand: pause, resume, recall, approve, mode, limit. Each says who and why.

With a cluster in the settings (`kubernetes`) each is a change of the control object there, which holds without Kafka
and across restarts. Without one it is a record on Kafka: pause, resume, mode and limit change the latest state of the
brakes, recall and approve are requests. Nothing takes effect here: the roles act on what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
import typer

from rebalancer.adapters.decode.control import CONTROL_NAME
from rebalancer.adapters.policyfile import load_policy
from rebalancer.cli import clusterdoors, doors, steering
from rebalancer.cli.exits import Code, Refused, say
from rebalancer.cli.options import Source
from rebalancer.cli.output import put_json
from rebalancer.cli.requesting import Asked, request
from rebalancer.core.facts import Control
from rebalancer.core.reasons import sentence
from rebalancer.core.stimuli import Approved, RecallRequested
from rebalancer.core.units import Mode

if TYPE_CHECKING:
    from rebalancer.adapters.store import Store
    from rebalancer.wire.envelope import Record

Pool = Annotated[str, typer.Option("--pool", help="Only this pool; everything otherwise.")]
FOLLOW = "`rebalancer decisions --follow` shows what follows"


@request
def pause(asked: Asked, *, pool: Pool = "") -> None:
    """Stop lending and load-driven recalls, of one pool or all; due times and waiting pods still bring nodes home."""
    known(pool, pools(asked), "pool")
    _brake(asked, lambda control: steering.paused(control, pool, asked.by, asked.why))


@request
def resume(
    asked: Asked,
    *,
    node: Annotated[str, typer.Option("--node", help="End the recall of this node.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="End the pause and the recall of this pool.")] = "",
    every: Annotated[bool, typer.Option("--all", help="End everything, also a retirement that was begun.")] = False,
) -> None:
    """Undo `pause` and `recall`: all of them, or those of one node or pool."""
    if sum((bool(node), bool(pool), every)) > 1:
        raise typer.BadParameter("say at most one of --node, --pool and --all")
    if pool:
        known(pool, pools(asked), "pool")
    _brake(asked, lambda control: steering.resumed(control, asked.by, asked.why, node=node, pool=pool, every=every))


@request
def recall(
    asked: Asked,
    *,
    node: Annotated[str, typer.Option("--node", help="Bring this node home.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="Bring all nodes of this pool home.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Bring every lent node home.")] = False,
    direct: Annotated[
        bool, typer.Option("--direct", help="Only through the control object in the cluster, never through Kafka.")
    ] = False,
) -> None:
    """Bring lent nodes home now: one node, a pool, or all. Gangs leave whole and with their notice.

    In the control object a recall stands: what it covers is not lent again before `resume --node`, `--pool`, or
    `resume`. Through Kafka it is one request about what is lent at that moment.
    """
    if sum((bool(node), bool(pool), every)) != 1:
        raise typer.BadParameter("say exactly one of --node, --pool and --all")
    if asked.settings.kubernetes is not None:
        known(pool, pools(asked), "pool")
        known(node, clusterdoors.node_names(asked.settings) if node else (), "node")
        _brake(asked, lambda control: steering.recalled(control, node, pool, asked.by, asked.why))
        return
    if direct:
        raise Refused("--direct needs the cluster in the settings (kubernetes)", Code.USAGE)
    _ask_recall(asked, node, pool)


def _ask_recall(asked: Asked, node: str, pool: str) -> None:
    if node or pool:
        store = Source(None, asked.settings).load("nodes", "pools")
        known(pool, store.pools, "pool")
        known(node, {name for one in store.nodes.values() for name in (one.name, one.uid)}, "node")
    scope: Literal["node", "pool", "all"] = "node" if node else "pool" if pool else "all"
    _told(asked, doors.ask(asked.settings, RecallRequested(scope, node or pool, asked.by, datetime.now(UTC))))


@request
def approve(asked: Asked, *, plan: Annotated[str, typer.Argument(help="Id of a decision that waits.")]) -> None:
    """Let a decision be carried out that the circuit breaker holds."""
    held = asked.settings
    try:
        waiting(Source(None, held).load("plans"), plan, datetime.now(UTC))
    except (ConnectionError, TimeoutError) as away:
        if held.kubernetes is None:
            raise
        say(f"not checked whether {plan} waits for approval: {away}")
    if held.kubernetes is None:
        _told(asked, doors.ask(held, Approved(plan, asked.by, datetime.now(UTC))))
    else:
        _brake(asked, lambda control: steering.approved(control, plan, asked.by, asked.why))


@request
def mode(
    asked: Asked,
    *,
    pool: Annotated[str, typer.Argument(help="A pool of the policy.")],
    to: Annotated[str, typer.Argument(metavar="shadow|act|policy", help="`policy`: what the policy file says.")],
) -> None:
    """Let a pool's decisions be carried out (act), or only be published and scored (shadow)."""
    if to not in {*Mode, "policy"}:
        raise typer.BadParameter("say shadow, act or policy")
    known(pool, pools(asked), "pool")
    wanted = None if to == "policy" else Mode(to)
    _brake(asked, lambda control: steering.moded(control, pool, wanted, asked.by, asked.why))


@request
def limit(
    asked: Asked, *, loans: Annotated[str, typer.Argument(metavar="N|none", help="Loans at once, over all pools.")]
) -> None:
    """Let at most so many nodes be lent at once; `none`: only the policy's own limit. Loans that stand stay."""
    if loans != "none" and not (loans.isascii() and loans.isdigit()):
        raise typer.BadParameter("say a number, or none")
    most = None if loans == "none" else int(loans)
    _brake(asked, lambda control: replace(control, max_loans=most, by=asked.by, why=asked.why))


def pools(asked: Asked) -> Collection[str]:
    """Names of the pools that there are: those of the policy at a cluster, those told of on Kafka otherwise."""
    held = asked.settings
    if held.kubernetes is None:
        return Source(None, held).load("pools").pools
    return load_policy(held.policy).pools if held.policy.is_file() else ()


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


def _brake(asked: Asked, change: Callable[[Control], Control]) -> None:
    held = asked.settings
    if held.kubernetes is None:
        control = change(Source(None, held).load("control").control or Control())
        _told(asked, doors.brake(held, control, datetime.now(UTC)))
        return
    control = clusterdoors.change(held, change)
    where = f"{held.kubernetes.namespace}/{CONTROL_NAME}"
    if asked.json:
        put_json({"object": where, "cluster": held.cluster, "control": control})
    else:
        say(f"{where}: {steering.standing(control)}; {FOLLOW}")


def _told(asked: Asked, record: Record) -> None:
    held = asked.settings
    if asked.json:
        put_json({"topic": record.topic, "cluster": held.cluster, "record": orjson.loads(record.value or b"null")})
    else:
        say(f"asked on {record.topic} at {held.kafka.bootstrap}; {FOLLOW}")
