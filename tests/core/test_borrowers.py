"""Who may borrow: every refusal has its reason, and certainty beats utilisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.borrowers import mismatch, on_loan_taint, refused, waiting_gangs
from rebalancer.core.facts import GangSpec, Namespace, Requirement, Taint, Toleration
from rebalancer.core.gangs import Borrower
from rebalancer.core.instructions import WorkloadRecord
from rebalancer.core.plan import LendNode
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import ON_LOAN, OwnerClass
from tests.core.build import START, Rig, budget, gang, node

LENT = (Taint(ON_LOAN, "training"),)
MODEL = Requirement("gpu-model", "In", ("A100",))


def answer(rig: Rig, **changes: Any) -> Because | None:
    """What a gang of two with these changes is told."""
    pods = gang("a", pods=2, **changes)
    rig.see(*pods)
    return refused(rig.engine.state, Borrower("ml/a", tuple(pods)), rig.now)


def test_a_reclaimable_gang_that_tolerates_the_taint_may_borrow() -> None:
    assert answer(Rig()) is None


@pytest.mark.parametrize(
    ("changes", "reason", "numbers"),
    [
        pytest.param({"gpus": None}, Reason.GPU_COUNT_UNKNOWN, {"pod": "ml/a-0"}, id="its GPUs cannot be counted"),
        pytest.param({"reclaimable": False}, Reason.NOT_RECLAIMABLE, {"gang": "ml/a"}, id="it is not reclaimable"),
        pytest.param(
            {"protected": ("claims", "x")}, Reason.PROTECTED, {"target": "ml/a-0", "why": "claims"}, id="protected"
        ),
        pytest.param({"opted_out": True}, Reason.OPTED_OUT, {"target": "ml/a-0"}, id="it opted out"),
        pytest.param({"namespace": "kube-system"}, Reason.OPTED_OUT, {"target": "kube-system/a-0"}, id="system"),
        pytest.param({"tolerations": ()}, Reason.NOT_TOLERATED, {"gang": "ml/a"}, id="it does not tolerate the taint"),
        pytest.param(
            {"tolerations": (Toleration(ON_LOAN, "Equal", "batch"),)},
            Reason.NOT_TOLERATED, {"gang": "ml/a"}, id="it tolerates the taint of another class",
        ),
        pytest.param(
            {"grace_seconds": 901}, Reason.GRACE_TOO_LONG,
            {"gang": "ml/a", "needed_seconds": 901, "lead_seconds": 1200.0}, id="its grace exceeds the longest allowed",
        ),
        pytest.param(
            {"grace_seconds": 900, "notice_seconds": 301}, Reason.GRACE_TOO_LONG,
            {"gang": "ml/a", "needed_seconds": 1201, "lead_seconds": 1200.0}, id="notice and grace exceed it",
        ),
    ],
)  # fmt: skip
def test_why_a_gang_may_not_borrow(changes: dict[str, Any], reason: Reason, numbers: dict[str, Any]) -> None:
    assert answer(Rig(), **changes) == Because(reason, numbers)


@pytest.mark.parametrize(
    "changes",
    [{"grace_seconds": 900, "notice_seconds": 300}, {"grace_seconds": 900}, {"notice_seconds": 1170}],
    ids=["both together just fit", "the longest grace fits", "a notice as long as the lead time leaves fits"],
)
def test_a_way_out_that_just_fits_is_accepted(changes: dict[str, Any]) -> None:
    assert answer(Rig(), **changes) is None


def test_one_member_that_is_unfit_refuses_the_whole_gang() -> None:
    rig = Rig()
    good, bad = gang("a", pods=2)
    bad = replace(bad, reclaimable=False)
    assert refused(rig.engine.state, Borrower("ml/a", (good, bad)), rig.now) == Because(
        Reason.NOT_RECLAIMABLE, {"gang": "ml/a"}
    )


def test_a_namespace_may_opt_out() -> None:
    rig = Rig()
    rig.see(Namespace("uid-ns", "ml", opted_out=True))
    assert answer(rig) == Because(Reason.OPTED_OUT, {"target": "ml/a-0"})
    rig.lose("namespace", "uid-ns")
    assert answer(rig) is None


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        pytest.param({"min_available": 2}, "budget-never-allows", id="all of its members must stay"),
        pytest.param({"min_available": None, "max_unavailable": 2}, "budget-never-allows", id="of a Job"),
        pytest.param({"min_available": None, "max_unavailable": "100%"}, "budget-never-allows", id="also in percent"),
    ],
)
def test_a_gang_that_could_never_be_taken_back_may_not_borrow(rules: dict[str, Any], why: str) -> None:
    rig = Rig()
    rig.see(budget("b", "a", 9, expected=2, **rules))
    found = answer(rig)
    assert found is not None
    assert (found.reason, found.numbers["why"], found.numbers["gang"]) == (Reason.BORROWER_NOT_EVICTABLE, why, "ml/a")


def test_a_budget_that_is_closed_only_now_does_not_refuse_a_loan() -> None:
    rig = Rig()
    rig.see(budget("b", "a", 0, expected=2))
    assert answer(rig) is None


def test_a_gang_that_a_plan_is_busy_with_waits() -> None:
    rig = Rig()
    rig.engine.state.busy_gangs["ml/a"] = "plan"
    assert answer(rig) == Because(Reason.IN_TRANSIT, {"node": "ml/a"})


def record(**values: Any) -> WorkloadRecord:
    return WorkloadRecord("ml/a", "ml", **values)


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        pytest.param(record(cooldown_until=START + timedelta(seconds=1)), Reason.COOLDOWN, id="in its cooldown"),
        pytest.param(record(cooldown_until=START), None, id="at the end of its cooldown"),
        pytest.param(record(protected_until=START + timedelta(seconds=1)), Reason.PREEMPTED_TOO_OFTEN, id="protected"),
        pytest.param(record(protected_until=START), None, id="at the end of its protection"),
        pytest.param(
            record(cooldown_until=START + timedelta(hours=1), protected_until=START + timedelta(hours=2)),
            Reason.PREEMPTED_TOO_OFTEN, id="protected counts before cooling",
        ),
    ],
)  # fmt: skip
def test_a_workload_that_was_evicted_lately(known: WorkloadRecord, reason: Reason | None) -> None:
    rig = Rig()
    rig.engine.state.workloads["ml/a"] = known
    found = answer(rig)
    assert (found.reason if found is not None else None) is reason


def test_only_preemptions_of_the_last_day_are_told() -> None:
    rig = Rig()
    moments = (START - timedelta(hours=24), START - timedelta(hours=23), START - timedelta(hours=1))
    rig.engine.state.workloads["ml/a"] = record(evictions=moments, protected_until=START + timedelta(hours=1))
    found = answer(rig)
    assert found == Because(
        Reason.PREEMPTED_TOO_OFTEN, {"workload": "ml/a", "preemptions": 2, "until": "2026-03-02T23:00+00:00"}
    )


@pytest.mark.parametrize(
    ("count", "ago", "capped"),
    [(50, 23, True), (49, 23, False), (50, 24, False)],
    ids=["fifty within a day", "one fewer", "a day ago"],
)
def test_a_namespace_has_a_cap_a_day_so_that_resubmitting_resets_nothing(count: int, ago: int, capped: bool) -> None:
    rig = Rig()
    rig.engine.state.namespace_evictions["ml"] = [rig.now - timedelta(hours=ago)] * count  # type: ignore[assignment]  # read only here
    found = answer(rig)
    assert found == (Because(Reason.NAMESPACE_CAP, {"namespace": "ml", "preemptions": count}) if capped else None)


def waiting(rig: Rig) -> list[str]:
    return [item.gang for item in waiting_gangs(rig.engine.state, (OwnerClass.TRAINING,))]


def test_gangs_wait_by_priority_then_age_then_name() -> None:
    rig = Rig()
    rig.see(*gang("young", created_at=START), *gang("urgent", priority=10, created_at=START), *gang("b"), *gang("a"))
    assert waiting(rig) == ["ml/urgent", "ml/a", "ml/b", "ml/young"]


def _one_bound(rig: Rig) -> None:
    rig.see(replace(gang("a", pods=2)[0], node="n9"))


def _one_gated(rig: Rig) -> None:
    rig.see(replace(gang("a", pods=2)[0], gated=True))


def _one_missing(rig: Rig) -> None:
    rig.lose("pod", "uid-a-0")


def _more_asked(rig: Rig) -> None:
    rig.see(GangSpec("uid-g", "ml/a", "ml", 3, 3))


def _less_asked(rig: Rig) -> None:
    rig.see(GangSpec("uid-g", "ml/a", "ml", 1, 1))


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        pytest.param(lambda _: None, True, id="all of it waits"),
        pytest.param(_one_bound, False, id="a member runs already"),
        pytest.param(_one_gated, False, id="a member is gated"),
        pytest.param(_one_missing, False, id="a member is still to come"),
        pytest.param(_more_asked, False, id="its gang object asks for more members"),
        pytest.param(_less_asked, True, id="a gang object that asks for less does not count against its pods"),
    ],
)
def test_only_a_gang_that_waits_as_a_whole_is_a_borrower(change: Callable[[Rig], None], waits: bool) -> None:
    rig = Rig()
    rig.see(*gang("a", pods=2))
    change(rig)
    assert bool(waiting(rig)) is waits


def test_an_elastic_gang_waits_once_its_minimum_is_there_and_other_classes_do_not_count() -> None:
    rig = Rig()
    rig.see(*(replace(pod, gang_size=4, gang_min=2) for pod in gang("a", pods=2)))
    rig.see(*gang("batch", owner=OwnerClass.BATCH))
    assert waiting(rig) == ["ml/a"]
    assert waiting_gangs(rig.engine.state, (OwnerClass.TRAINING,))[0].gpus == 16


@pytest.mark.parametrize(
    ("terms", "labels", "taints", "reason"),
    [
        pytest.param(((MODEL,),), {"gpu-model": "A100"}, LENT, None, id="it declares the model"),
        pytest.param((), {"gpu-model": "A100"}, LENT, Reason.MODEL_MISMATCH, id="it declares no model at all"),
        pytest.param(((MODEL,),), {"gpu-model": "L20"}, LENT, Reason.MODEL_MISMATCH, id="it declares another model"),
        pytest.param(
            ((MODEL,), ()), {"gpu-model": "A100"}, LENT, Reason.MODEL_MISMATCH, id="one alternative declares nothing"
        ),
        pytest.param(
            ((Requirement("gpu-model", "NotIn", ("H100",)),),), {"gpu-model": "A100"}, LENT, Reason.MODEL_MISMATCH,
            id="what it refuses is no declaration",
        ),
        pytest.param(
            ((Requirement("gpu-model", "Exists"),),), {"gpu-model": "A100"}, LENT, Reason.MODEL_MISMATCH,
            id="any model is no declaration",
        ),
        pytest.param(
            ((MODEL, Requirement("network", "In", ("ib",))),), {"gpu-model": "A100", "network": "eth"}, LENT,
            Reason.NETWORK_MISMATCH, id="it needs another network",
        ),
        pytest.param(
            ((MODEL, Requirement("zone", "In", ("z1",))),), {"gpu-model": "A100"}, LENT,
            Reason.SELECTOR_MISMATCH, id="it selects other nodes",
        ),
        pytest.param(
            ((MODEL,),), {"gpu-model": "A100"}, (*LENT, Taint("maintenance")), Reason.NOT_TOLERATED,
            id="another taint keeps it away",
        ),
        pytest.param(
            ((MODEL,),), {"gpu-model": "A100"}, (*LENT, Taint("wish", "", "PreferNoSchedule")), None,
            id="a wish keeps nobody away",
        ),
        pytest.param(
            ((Requirement("accelerator", "In", ("a100",)),),), {"accelerator": "a100"}, LENT, None,
            id="the accelerator label declares too",
        ),
    ],
)  # fmt: skip
def test_whether_a_gang_may_run_on_a_node_once_lent(
    terms: tuple[Any, ...], labels: dict[str, str], taints: tuple[Taint, ...], reason: Reason | None
) -> None:
    """F52: without a declaration there is no overflow."""
    who = Borrower("ml/a", tuple(gang("a", pods=2, node_terms=terms)))
    found = mismatch(who, node("n0", labels=labels, network=labels.get("network", "")), taints)
    assert (found.reason if found is not None else None) is reason


@pytest.mark.parametrize("model", ["", "unknown"])
def test_a_node_whose_model_is_unknown_suits_nobody(model: str) -> None:
    who = Borrower("ml/a", tuple(gang("a")))
    found = mismatch(who, node("n0", model=model), LENT)
    assert found == Because(Reason.MODEL_MISMATCH, {"gang": "ml/a", "model": model})


def test_the_taint_of_a_loan_names_the_borrower() -> None:
    assert on_loan_taint(OwnerClass.BATCH) == Taint("gpu-rebalancer.io/on-loan", "batch", "NoSchedule")


def test_a_loan_step_says_what_it_is() -> None:
    assert LendNode.__dataclass_fields__["kind"].default == "lend"
