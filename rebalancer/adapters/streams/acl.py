"""The least that each role needs on our topics, as data and as lines for Kafka's own tool.

Whoever may write plans could have pods evicted, so only the decider may, and act, which tells what it planned alone
while Kafka was silent; act checks every plan again all the same. Nothing is granted here: the lines are for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from rebalancer.wire import v1

Role: TypeAlias = Literal["collect", "telemetry", "decide", "act", "subscriber", "auditor"]
GROUPS = "gpu-rebalancer-"
"""Consumer groups are named after the program and the role."""
_FACTS = tuple(v1.FACT_TOPICS.values())
_LEDGER = (v1.STATE_LOAN, v1.STATE_WORKLOAD, v1.STATE_POOL, v1.FORECAST_POOL, v1.ALERT)
_TOLD = (v1.STATE_NODE, v1.STATE_TELEMETRY, *_LEDGER, v1.USAGE_LOAN, v1.PLAN, v1.OUTCOME)
_EXPLAINED = (
    *(v1.FACT_TOPICS[of] for of in ("node", "pod", "control")), v1.STATE_POOL, v1.STATE_LOAN, v1.STATE_WORKLOAD,
    v1.PLAN, v1.OUTCOME, v1.ALERT,
)  # fmt: skip
"""What act reads: to act, to tell alerts, and to answer on its pages why things happened."""


class _Needs(NamedTuple):
    reads: tuple[str, ...]
    writes: tuple[str, ...]


NEEDS: Mapping[Role, _Needs] = {
    "collect": _Needs((v1.CONTROL,), (*_FACTS, v1.SAMPLE_DEVICE, v1.SAMPLE_DEMAND)),
    "telemetry": _Needs((v1.SAMPLE_DEVICE,), (v1.STATE_NODE, v1.STATE_TELEMETRY)),
    "decide": _Needs(
        (*_FACTS, v1.CONTROL, v1.SAMPLE_DEMAND, v1.STATE_NODE, v1.STATE_TELEMETRY, *_LEDGER, v1.PLAN, v1.OUTCOME),
        (*_LEDGER, v1.USAGE_LOAN, v1.PLAN, v1.CONTROL, v1.JOURNAL),
    ),
    "act": _Needs((*_EXPLAINED, v1.CONTROL), (v1.OUTCOME, v1.PLAN)),
    "subscriber": _Needs(_TOLD, ()),
    "auditor": _Needs((*_FACTS, *_TOLD), ()),
}
"""Roles also write the dead letters of what they read; readers from outside do not. An auditor also sees the facts."""
OUTSIDE = frozenset({"subscriber", "auditor"})

SOURCES_READ = (v1.FACT_TOPICS["node"], v1.FACT_TOPICS["pod"])
"""Where the reader of foreign sources learns which nodes and pods there are."""
SOURCES_WRITE = (v1.CONTROL, *(f"{topic}.dlq" for topic in (v1.FACT_TOPICS["pod"], v1.SAMPLE_DEVICE)))
"""What it writes beside facts and samples; dead letters lie beside our topics, never beside the foreign ones."""


@dataclass(frozen=True, slots=True)
class Acl:
    """One permission: ``pattern`` is literal or prefixed, as Kafka has it."""

    principal: str
    resource: Literal["topic", "group"]
    name: str
    pattern: Literal["literal", "prefixed"]
    operations: tuple[str, ...]

    @property
    def line(self) -> str:
        """For Kafka's tool; where and as whom to connect is left to ``$KAFKA``."""
        operations = " ".join(f"--operation {operation}" for operation in self.operations)
        return (
            f"kafka-acls $KAFKA --add --allow-principal {self.principal} {operations}"
            f" --resource-pattern-type {self.pattern} --{self.resource} {self.name}"
        )

    def as_json(self) -> dict[str, Any]:
        """For tools that keep permissions as data."""
        return {**asdict(self), "operations": list(self.operations)}


def acl(role: Role, principal: str = "", *, sources: Sequence[str] = ()) -> list[Acl]:
    """What a role may do and no more.

    Args:
        role: one of the parts; ``subscriber`` for whoever only reads what we tell, ``auditor`` for whoever checks it.
        principal: as Kafka has it; ``User:gpu-rebalancer-<role>`` if not given.
        sources: topics of others that the role reads (configured sources).
    """
    who = principal or f"User:{GROUPS}{role}"
    return list(_permissions(role, who, sources))


def _permissions(role: Role, who: str, sources: Sequence[str]) -> Iterator[Acl]:
    needs, foreign = NEEDS[role], role == "collect" and bool(sources)
    read = (*needs.reads, *sources, *(SOURCES_READ if foreign else ()))
    dead = () if role in OUTSIDE else tuple(f"{topic}.dlq" for topic in needs.reads)
    write = (*needs.writes, *dead, *(SOURCES_WRITE if foreign else ()))
    for topic in sorted({*read, *write}):
        wanted = (("Read", read), ("Write", write), ("Describe", (topic,)))
        yield Acl(who, "topic", topic, "literal", tuple(name for name, where in wanted if topic in where))
    yield Acl(who, "group", f"{GROUPS}{role}", "prefixed", ("Read",))
