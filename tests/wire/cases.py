"""One realistic object of every kind of record, as the core has it: read by the golden, schema and drift tests."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from rebalancer.adapters import translate as wire
from rebalancer.core import charges, facts, instructions, loans, plan, stimuli, telemetry
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Activity, Mode, OwnerClass
from rebalancer.wire.envelope import Record

CLUSTER = "gpu-berlin-1"
AT = datetime(2026, 3, 29, 0, 59, 59, 123456, tzinfo=UTC)
DUE = AT + timedelta(hours=5)
TAINT = facts.Taint("workload", "inference")
LENT = Because(
    Reason.IDLE_PROVEN,
    {"gpus": 8, "node": "a100-07", "idle_minutes": 42.5, "spare_nodes": 3, "gang": "ml/train-7b", "due": "06:00"},
)
TOO_LARGE = Because(Reason.TOO_LARGE, {"gang": "ml/huge", "needed_nodes": 16, "spare_nodes": 3})

MARK = facts.LoanMark(
    loan="loan-1", node_uid="node-uid-7", lender="infer-a100", borrower=OwnerClass.TRAINING, gang="ml/train-7b",
    due=DUE, recall_at=DUE - timedelta(minutes=20), phase="on-loan", plan="plan-1", epoch=3, opened_at=AT,
    taint=TAINT, taint_index=0,
)  # fmt: skip
NODE = facts.Node(
    uid="node-uid-7", name="a100-07", pool="infer-a100", model="A100", owner=OwnerClass.INFERENCE, gpus=8,
    capacity=8, created_at=AT - timedelta(days=90), network="ib-1", labels={"gpu-model": "A100"},
    taints=(facts.Taint("gpu-rebalancer.io/on-loan", "training"),), loan=MARK, resource_version="88123",
)  # fmt: skip
POD = facts.Pod(
    uid="pod-uid-1", name="train-7b-0", namespace="ml", gpus=8, phase=facts.PodPhase.RUNNING,
    owner=OwnerClass.TRAINING, gang="ml/train-7b", workload="ml/research/train-7b", created_at=AT, node="a100-07",
    gang_size=2, gang_min=2, queue="research", priority=-10, labels={"app": "train"},
    node_terms=((facts.Requirement("gpu-model", "In", ("A100", "L20")),),),
    tolerations=(facts.Toleration("gpu-rebalancer.io/on-loan", "Exists"),),
    anti_affinity=((facts.Requirement("app", "Exists"),),), reclaimable=True, controller_kind="Job",
    top_owner="Job/train-7b", started_at=AT, checkpointed_at=AT, progress=0.1 + 0.2, resource_version="88124",
)  # fmt: skip
BUDGET = facts.Budget(
    uid="pdb-uid-1", namespace="ml", name="train", selector=(facts.Requirement("app", "In", ("train",)),),
    allowed=1, expected=2, healthy=2, min_available="50%", max_unavailable=None,
)  # fmt: skip
GROUP = facts.GangSpec("pg-uid-1", "ml/train-7b", "ml", 2, 2, "research", "Job/train-7b", opted_out=True)
NAMESPACE = facts.Namespace("ns-uid-1", "ml", opted_out=True)
CONTROL = facts.Control(
    paused_pools=("infer-l20",), recall_nodes=("a100-03",), max_loans=10, modes={"infer-a100": Mode.ACT},
    approved=("plan-0",), by="oncall", why="load test",
)  # fmt: skip
SAMPLE = telemetry.NodeSample(
    "node-uid-7", "a100-07", AT, 2,
    (telemetry.DeviceReading("GPU-1", 0.031, 3.0, 61.5, 1.0e12, 33.0, 412.0, 0), telemetry.DeviceReading("GPU-2")),
)  # fmt: skip
VERDICT = telemetry.Verdict(
    "node-uid-7", Activity.IDLE, 0.05, 8, AT - timedelta(minutes=42), AT, 3, signal="engine_active",
    unhealthy=(79,),
)  # fmt: skip
HEARTBEAT = telemetry.Heartbeat("telemetry-0", AT, (0, 3), 40, 0.25)
DEMAND = telemetry.DemandSample("infer-a100", 37.5, AT, "gateway")
POOL = instructions.PoolState(
    "infer-a100", AT, 160, 60, 90, 10, 0, 64, 96, 0, 0, 16, 0, 66.5, 8.0, 20, 2, 4, "act", window_open=True,
    idle_blockers={Reason.FLOOR: 32}, idle_gpu_hours={Reason.FLOOR: 1.5}, occupancy={"1m": 0.4},
    shadow={"gpu_hours_lent": 12.0},
)  # fmt: skip
MEMORY = instructions.PoolMemory(
    "infer-a100", AT, AT, 60, (3.0, math.nan, 5.5), 0.97, 12.0, 1.0e6, (94.0,), 300.0, {"0.5": 66.0, "0.9": 71.0},
    usage=charges.UsageMemory(
        AT,
        AT,
        AT,
        (charges.UsageRow("loan-1", "ml/train-7b", AT, (8, 8, 0, 0, 0), (7, 7, 0, 0, 0), AT, 1, "ml", "research"),),
        ("eviction-1",),
        (charges.LoanMove("loan-1", AT, "lent"),),
    ),
)  # fmt: skip
LOAN_USAGE = charges.LoanUsage(
    "usage-2", "loan-1", AT - timedelta(hours=1), AT, "infer-a100", "ml", "research", "ml/train-7b", "A100",
    28000.5, 27360.0, 64.0, 12.5, 799.5, "node-uid-7", "a100-07", "usage-1",
)  # fmt: skip
POOL_USAGE = charges.PoolUsage(
    "usage-3", "infer-a100", AT - timedelta(hours=1), AT, 576000.0, 230400.0, 57600.0, 240.0, 258960.0, 28800.0
)
LOAN = loans.Loan(
    "loan-1", "node-uid-7", "a100-07", "infer-a100", OwnerClass.TRAINING, "ml/train-7b", 8, Mode.ACT,
    loans.LoanPhase.RECALLING, "plan-1", LENT, AT, DUE, DUE - timedelta(minutes=20), TAINT, lent_at=AT,
    closing_at=AT, lost_gpu_seconds=12.5, renewed_at=AT,
)  # fmt: skip
WORKLOAD = instructions.WorkloadRecord("ml/research/train-7b", "ml", (AT,), AT, None, "plan-1")
EVICT = plan.EvictGang(
    "ml/train-7b", "ml/research/train-7b", "ml", "Job/train-7b",
    (plan.Member("pod-uid-1", "ml", "train-7b-0", "a100-07", 8, ("train",)),), True, AT, DUE, 60, 30, 480.0, LENT,
)  # fmt: skip
PLAN = plan.Plan(
    "plan-1", "infer-a100", plan.Method.RETURN, Mode.ACT, LENT,
    (
        plan.LendNode(
            "loan-1", "node-uid-7", "a100-07", "infer-a100", OwnerClass.TRAINING, "ml/train-7b", 8, DUE, DUE, TAINT
        ),
        plan.CloseNode("loan-1", "node-uid-7", "a100-07"),
        EVICT,
        plan.RestoreNode("loan-1", "node-uid-7", "a100-07", DUE),
        plan.RestoreNode("", "node-uid-8", "a100-08", DUE, TAINT),
        plan.RenewLoan("loan-1", "node-uid-7", "a100-07", DUE, DUE - timedelta(minutes=20)),
    ),
    AT, AT + timedelta(minutes=10), (plan.Alternative("ml/huge", TOO_LARGE),), pressing=True, term=41,
)  # fmt: skip
OUTCOME = plan.Outcome(
    "plan-1", "infer-a100", 2, "evict", "ml/train-7b", plan.Result.DONE, Because(Reason.CONFIRMED), AT,
    epoch=3, numbers={"members": 1, "lost_gpu_seconds": 12.5},
)  # fmt: skip
RAISED = instructions.RaiseAlert("alert-1", "critical", "a100-07", "infer-a100", LENT, AT, {"seconds": 30})
CLEARED = instructions.ClearAlert("alert-1", AT)
STIMULUS = stimuli.FactObserved(POD, AT)

SAID: Mapping[str, object] = {
    "fact.node": stimuli.FactObserved(NODE, AT),
    "fact.pod": STIMULUS,
    "fact.budget": stimuli.FactObserved(BUDGET, AT),
    "fact.group": stimuli.FactObserved(GROUP, AT),
    "fact.namespace": stimuli.FactObserved(NAMESPACE, AT),
    "fact.control": stimuli.FactObserved(CONTROL, AT),
    "snapshot.began": stimuli.SnapshotBegan("pod", "snap-1", AT),
    "snapshot.ended": stimuli.SnapshotEnded("pod", "snap-1", 4000, AT),
    "control.snapshot": wire.SnapshotRequested("pod", TOO_LARGE, AT),
    "control.approve": stimuli.Approved("plan-1", "oncall", AT),
    "control.recall": stimuli.RecallRequested("pool", "infer-a100", "oncall", AT),
    "sample.device": SAMPLE,
    "sample.demand": stimuli.DemandReported(DEMAND),
    "state.node": stimuli.VerdictGiven(VERDICT),
    "state.telemetry": stimuli.HeartbeatHeard(HEARTBEAT),
    "state.pool": POOL,
    "state.loan": LOAN,
    "state.workload": WORKLOAD,
    "usage.loan": LOAN_USAGE,
    "usage.pool": POOL_USAGE,
    "forecast.pool": MEMORY,
    "decision.plan": PLAN,
    "decision.term": wire.TermRecord("decide-0", AT),
    "decision.outcome": stimuli.OutcomeReported(OUTCOME),
    "alert.raised": RAISED,
    "alert.cleared": CLEARED,
    "journal": wire.JournalEntry(STIMULUS, AT),
    "barrier": wire.Barrier(17, AT, "3"),
}
"""What each kind of record says once it is decoded."""

RECORDS: Mapping[str, Record] = {
    "fact.node": wire.encode_fact(NODE, CLUSTER, AT),
    "fact.pod": wire.encode_fact(POD, CLUSTER, AT),
    "fact.budget": wire.encode_fact(BUDGET, CLUSTER, AT),
    "fact.group": wire.encode_fact(GROUP, CLUSTER, AT),
    "fact.namespace": wire.encode_fact(NAMESPACE, CLUSTER, AT),
    "fact.control": wire.encode_fact(CONTROL, CLUSTER, AT),
    "snapshot.began": wire.encode_snapshot(stimuli.SnapshotBegan("pod", "snap-1", AT), CLUSTER),
    "snapshot.ended": wire.encode_snapshot(stimuli.SnapshotEnded("pod", "snap-1", 4000, AT), CLUSTER),
    "control.snapshot": wire.encode_request(wire.SnapshotRequested("pod", TOO_LARGE, AT), CLUSTER),
    "control.approve": wire.encode_request(stimuli.Approved("plan-1", "oncall", AT), CLUSTER),
    "control.recall": wire.encode_request(stimuli.RecallRequested("pool", "infer-a100", "oncall", AT), CLUSTER),
    "sample.device": wire.encode_sample(SAMPLE, CLUSTER),
    "sample.demand": wire.encode_demand(DEMAND, CLUSTER),
    "state.node": wire.encode_verdict(VERDICT, CLUSTER),
    "state.telemetry": wire.encode_heartbeat(HEARTBEAT, CLUSTER),
    "state.pool": wire.encode_pool(POOL, CLUSTER),
    "state.loan": wire.encode_loan(LOAN, CLUSTER, AT),
    "state.workload": wire.encode_workload(WORKLOAD, CLUSTER, AT),
    "usage.loan": wire.encode_usage(LOAN_USAGE, CLUSTER),
    "usage.pool": wire.encode_usage(POOL_USAGE, CLUSTER),
    "forecast.pool": wire.encode_forecast(MEMORY, CLUSTER),
    "decision.plan": wire.encode_plan(PLAN, CLUSTER),
    "decision.term": wire.encode_term(wire.TermRecord("decide-0", AT), CLUSTER),
    "decision.outcome": wire.encode_outcome(OUTCOME, CLUSTER),
    "alert.raised": wire.encode_alert(RAISED, CLUSTER),
    "alert.cleared": wire.encode_alert(CLEARED, CLUSTER),
    "journal": wire.encode_journal(STIMULUS, AT, CLUSTER),
    "barrier": wire.encode_barrier("gpu.state.node.v1", wire.Barrier(17, AT, "3"), CLUSTER),
}
