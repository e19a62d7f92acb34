"""A small night as records: one loan lent and returned, one gang evicted, one refused. Times are UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from rebalancer.adapters import translate
from rebalancer.core.facts import Control, Node, Pod, PodPhase
from rebalancer.core.instructions import PoolState, RaiseAlert, WorkloadRecord
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.plan import (
    Alternative,
    CloseNode,
    EvictGang,
    LendNode,
    Member,
    Method,
    Outcome,
    Plan,
    RestoreNode,
    Result,
)
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.wire.envelope import Record

CLUSTER = "berlin"
T0 = datetime(2026, 3, 3, 22, 0, tzinfo=UTC)
DUE = datetime(2026, 3, 4, 6, 0, tzinfo=UTC)
GANG = "research/llm-7"
LEND, RECLAIM, HELD_BACK = "aaaa000000000001", "bbbb000000000002", "cccc000000000003"


def at(minutes: float) -> datetime:
    """So many minutes after the night began."""
    return T0 + timedelta(minutes=minutes)


def node(uid: str, name: str, pool: str = "infer-a100") -> Node:
    return Node(uid, name, pool, "A100", OwnerClass.INFERENCE, 8, 8, T0)


def pod(name: str, *, where: str = "", gang: str = GANG) -> Pod:
    return Pod(
        uid=f"uid-{name}",
        name=name,
        namespace="research",
        gpus=8,
        phase=PodPhase.RUNNING if where else PodPhase.PENDING,
        owner=OwnerClass.TRAINING,
        gang=gang,
        workload=f"research/training/{gang}",
        created_at=T0,
        node=where,
    )


def loan(phase: LoanPhase, closed: datetime | None = None) -> Loan:
    because = Because(
        Reason.IDLE_PROVEN,
        {"gpus": 8, "node": "a-1", "idle_minutes": 25, "spare_nodes": 3, "gang": GANG, "due": "06:00Z"},
    )
    return Loan(
        id="loan-1",
        node="n1",
        node_name="a-1",
        lender="infer-a100",
        borrower=OwnerClass.TRAINING,
        gang=GANG,
        gpus=8,
        mode=Mode.ACT,
        phase=phase,
        plan=LEND,
        because=because,
        opened_at=at(30),
        due=DUE,
        recall_at=DUE - timedelta(minutes=20),
        lent_at=at(31),
        closed_at=closed,
    )


def lend_plan() -> Plan:
    one = loan(LoanPhase.OPENING)
    step = LendNode("loan-1", "n1", "a-1", "infer-a100", OwnerClass.TRAINING, GANG, 8, DUE, one.recall_at, None)
    no = Because(Reason.MODEL_MISMATCH, {"gang": "research/vision", "model": "A100"})
    rejected = (Alternative("research/vision", no),)
    return Plan(LEND, "infer-a100", Method.LEND, Mode.ACT, one.because, (step,), at(30), at(40), rejected)


def reclaim_plan() -> Plan:
    pending = Because(Reason.INFERENCE_PENDING, {"pods": 6, "pool": "infer-a100", "needed_gpus": 24, "ready_gpus": 8})
    members = (Member("uid-llm-7-0", "research", "llm-7-0", "a-1", 8),)
    evict = EvictGang(
        gang=GANG,
        workload=f"research/training/{GANG}",
        namespace="research",
        top_owner="job/llm-7",
        members=members,
        whole=True,
        not_before=at(300),
        deadline=at(310),
        notice_seconds=0,
        grace_seconds=30,
        lost_gpu_seconds=960.0,
        because=Because(Reason.COSTS_MORE, {"gang": GANG, "lost_gpu_seconds": 960}),
    )
    steps = (CloseNode("loan-1", "n1", "a-1"), evict, RestoreNode("loan-1", "n1", "a-1", DUE))
    other = Because(Reason.CHECKPOINTING, {"gang": "research/moe"})
    return Plan(
        RECLAIM,
        "infer-a100",
        Method.RECLAIM,
        Mode.ACT,
        pending,
        steps,
        at(300),
        at(310),
        (Alternative("research/moe", other),),
        pressing=True,
    )


def held_back_plan() -> Plan:
    circuit = Because(Reason.CIRCUIT_OPEN, {"share_percent": 40, "pool": "infer-a100", "limit_percent": 25})
    step = CloseNode("loan-9", "n2", "a-2")
    return Plan(
        HELD_BACK,
        "infer-a100",
        Method.RECLAIM,
        Mode.ACT,
        circuit,
        (step,),
        at(310),
        datetime(2999, 1, 1, tzinfo=UTC),
        awaits_approval=True,
    )


def outcome(plan: Plan, step: int, kind: str, target: str, minutes: float) -> Outcome:
    return Outcome(
        plan.id, plan.pool, step, kind, target, Result.DONE, Because(Reason.CONFIRMED), at(minutes), "loan-1"
    )


def pool_state() -> PoolState:
    return PoolState(
        pool="infer-a100",
        at=at(320),
        owned=160,
        busy=40,
        idle=100,
        unknown=20,
        unhealthy=0,
        held=60,
        free=100,
        pending=0,
        releasing=0,
        lent=8,
        borrowed=0,
        demand=48.5,
        headroom=12.0,
        nodes=20,
        lent_nodes=1,
        floor_nodes=4,
        mode="act",
        window_open=True,
        idle_blockers={"floor": 32, "not-idle-long-enough": 8},
        idle_gpu_hours={"floor": 170.5, "not-idle-long-enough": 12.25, "busy": 0.0},
    )


def records() -> Iterator[Record]:
    """The whole night, in order."""
    lend, reclaim = lend_plan(), reclaim_plan()
    yield translate.encode_fact(node("n1", "a-1"), CLUSTER, T0)
    yield translate.encode_fact(node("n2", "a-2"), CLUSTER, T0)
    yield translate.encode_fact(pod("waiting-0", gang="research/waiting"), CLUSTER, T0)
    yield translate.encode_plan(lend, CLUSTER)
    yield translate.encode_outcome(outcome(lend, 0, "lend", "n1", 31), CLUSTER)
    yield translate.encode_loan(loan(LoanPhase.ON_LOAN), CLUSTER, at(31))
    yield translate.encode_plan(reclaim, CLUSTER)
    yield translate.encode_outcome(outcome(reclaim, 0, "close", "n1", 301), CLUSTER)
    yield translate.encode_outcome(outcome(reclaim, 1, "evict", GANG, 302), CLUSTER)
    yield translate.encode_outcome(outcome(reclaim, 2, "restore", "n1", 303), CLUSTER)
    yield translate.encode_loan(loan(LoanPhase.RETURNED, at(303)), CLUSTER, at(303))
    cooldown = WorkloadRecord(f"research/training/{GANG}", "research", (at(302),), at(330), None, RECLAIM)
    yield translate.encode_workload(cooldown, CLUSTER, at(302))
    yield translate.encode_plan(held_back_plan(), CLUSTER)
    yield translate.encode_pool(pool_state(), CLUSTER)
    overdue = Because(Reason.OVERDUE, {"node": "a-9", "overdue_seconds": 60})
    yield translate.encode_alert(RaiseAlert("alert-1", "critical", "a-9", "infer-a100", overdue, at(320)), CLUSTER)
    yield translate.encode_fact(Control(by="ada", why="maintenance", paused_pools=("infer-l20",)), CLUSTER, at(321))


def tap(folder: Path) -> Path:
    """The night as a run taps it: one JSON-lines file a topic."""
    folder.mkdir(parents=True, exist_ok=True)
    for offset, record in enumerate(records()):
        line = {
            "topic": record.topic,
            "partition": 0,
            "offset": offset,
            "key": record.key.decode(),
            "headers": [[name, value.decode()] for name, value in record.headers],
            "value": None if record.value is None else record.value.decode(),
        }
        with (folder / f"{record.topic}.jsonl").open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")
    return folder
