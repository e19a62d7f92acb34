"""Small objects of the core for the streams' tests."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from rebalancer.core.facts import Node
from rebalancer.core.plan import Method, Outcome, Plan, Result
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.telemetry import DeviceReading, NodeSample
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.core.windows import Window

CLUSTER = "sim"
NOW = datetime(2026, 3, 2, 22, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLICY = Policy(
    {
        "infer-l20": PoolPolicy(
            "infer-l20",
            "L20",
            OwnerClass.INFERENCE,
            Mode.ACT,
            (Window("always", ZoneInfo("UTC"), always=True),),
            (OwnerClass.TRAINING,),
        )
    }
)


def node(uid: str, at: datetime = NOW, gpus: int = 8) -> Node:
    return Node(uid, f"name-{uid}", "infer-l20", "L20", OwnerClass.INFERENCE, gpus, gpus, at)


def plan(name: str, term: int = 0, valid: timedelta = 10 * MINUTE, at: datetime = NOW) -> Plan:
    because = Because(Reason.LOAN_DUE, {"node": "n"})
    return Plan(name, "infer-l20", Method.RETURN, Mode.ACT, because, (), at, at + valid, term=term)


def outcome(of: str, at: datetime = NOW) -> Outcome:
    return Outcome(of, "infer-l20", 0, "close", "n1", Result.DONE, Because(Reason.CONFIRMED), at)


def sample(uid: str, busy: float, at: datetime, gpus: int = 2) -> NodeSample:
    """A healthy exporter: energy counts up with time."""
    energy = at.timestamp()
    cards = tuple(
        DeviceReading(f"{uid}-{one}", busy, busy * 100, 60.0 + energy % 7, energy * 1000, 40.0, 10.0, 0)
        for one in range(gpus)
    )
    return NodeSample(uid, f"name-{uid}", at, gpus, cards)
