"""Folding a journal again: from a tapped folder or a file of records, to the plans it gave then, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from rebalancer.adapters.streams.journal import entries
from rebalancer.adapters.streams.journal import replay as fold
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.tap import from_line
from rebalancer.adapters.translate import cluster_of, decode
from rebalancer.core.engine import Engine
from rebalancer.core.plan import Plan
from rebalancer.core.protocol.fallback import ALONE
from rebalancer.simulate.stepview import Replayed
from rebalancer.wire import v1

SHOWN = 20
"""Differences told at most."""


class NoJournal(FileNotFoundError):  # noqa: N818 - says what is missing
    """There is nothing to fold."""


def replay(path: Path) -> Replayed:
    """Fold the journal of a folder or file, and compare with the plans recorded beside it.

    Raises NoJournal if there is none, ValueError or WireError for lines that cannot be read.
    """
    journal = path / f"{v1.JOURNAL}.jsonl" if path.is_dir() else path
    if not journal.is_file():
        raise NoJournal(f"{journal} does not exist; `rebalancer demo --out DIR` writes one")
    came = _records(journal)
    if not came:
        raise NoJournal(f"{journal} holds no journal entries")
    cluster = came[0].key.decode()
    told = list(entries(came, cluster))
    made = fold(told, lambda policy: Engine(cluster, policy))
    beside = journal.with_name(f"{v1.PLAN}.jsonl")
    recorded = _plans(_records(beside), cluster) if beside.is_file() else []
    return Replayed(len(told), len(made), len(recorded), tuple(_differences(made, recorded)) if recorded else ())


def _records(path: Path) -> list[Came]:
    """Whole lines of a tapped file; a line that was cut off when its writer was killed is passed over."""
    with path.open("rb") as lines:
        return [from_line(line) for line in lines if line.endswith(b"\n")]


def _plans(records: Sequence[Came], cluster: str) -> list[Plan]:
    """What deciders of the cluster published; what act decided alone while Kafka was silent is in no journal."""
    mine = [one for one in records if cluster_of(one.headers) == cluster]
    told = [decode(one.topic, one.key, one.value, one.headers) for one in mine]
    return [one for one in told if isinstance(one, Plan) and not one.id.startswith(ALONE)]


def _differences(made: Sequence[Plan], recorded: Sequence[Plan]) -> Iterator[str]:
    unequal = [pair for pair in zip_longest(made, recorded) if pair[0] != pair[1]]
    for one, other in unequal[:SHOWN]:
        yield f"folded {_named(one)}, recorded {_named(other)}"
    if len(unequal) > SHOWN:
        yield f"and {len(unequal) - SHOWN} more"


def _named(plan: Plan | None) -> str:
    return f"{plan.method} {plan.id} of {plan.pool} at {plan.made_at.isoformat()}" if plan is not None else "nothing"
