"""A training gang and its pods as data: what one attempt of a job is, and how a member of it is asked for.

What becomes of gangs is ``training``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.core.facts import Pod, PodPhase, Requirement, Selector, Toleration
from rebalancer.core.units import ON_LOAN, PREFIX, GangId, OwnerClass, PodUid
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.scenario import JobSpec


@dataclass(slots=True)
class Gang:
    """One attempt of a job. ``done`` and ``saved`` are seconds of full-speed work."""

    job: JobSpec
    stream: str
    attempt: int
    done: float
    saved: float
    group_uid: str
    budget_uid: str
    members: dict[PodUid, int] = field(default_factory=dict)
    running: dict[PodUid, None] = field(default_factory=dict)
    evicted: dict[PodUid, None] = field(default_factory=dict)
    whole_since: float | None = None
    rate: float = 1.0
    turn: int = 0
    """Grows with every start and stop: an older event of the gang no longer counts."""
    broken: bool = False
    finished: bool = False
    ever_ran: bool = False

    @property
    def id(self) -> GangId:
        """The gang's identity; a new attempt is a new gang."""
        return f"{self.job.namespace}/{self.job.name}-{self.attempt}"

    @property
    def minimum(self) -> int:
        """Members below which it makes no progress."""
        return self.job.min_pods or self.job.pods

    @property
    def waiting(self) -> bool:
        """Submitted and never yet whole."""
        return not self.ever_ran and not self.finished


def member_pod(gang: Gang, index: int, uid: PodUid, agenda: Agenda, t: float) -> Pod:
    """A pending member of a gang."""
    job = gang.job
    labels = {"job-name": job.name, "workload-type": job.owner}
    if job.reclaimable:
        labels[PREFIX + "reclaimable"] = "true"
    return Pod(
        uid=uid,
        name=f"{job.name}-{gang.attempt}-{index}-{uid[:5]}",
        namespace=job.namespace,
        gpus=job.gpus,
        phase=PodPhase.PENDING,
        owner=OwnerClass(job.owner),
        gang=gang.id,
        workload=f"{job.namespace}/{job.name}",
        created_at=agenda.clock(t),
        gang_size=job.pods,
        gang_min=gang.minimum,
        queue=job.queue,
        priority=job.priority,
        labels=labels,
        node_terms=_terms(job),
        tolerations=_tolerations(job),
        reclaimable=job.reclaimable,
        controller_kind="Job",
        top_owner=f"Job/{job.name}",
        grace_seconds=job.grace_seconds,
        notice_seconds=job.notice_seconds,
    )


def _terms(job: JobSpec) -> tuple[Selector, ...]:
    term: list[Requirement] = []
    if job.models:
        term.append(Requirement("gpu-model", "In", job.models))
    if job.network:
        term.append(Requirement("network", "In", (job.network,)))
    if job.pool:
        term.append(Requirement("node-pool", "In", (job.pool,)))
    return (tuple(term),) if term else ()


def _tolerations(job: JobSpec) -> tuple[Toleration, ...]:
    owner = Toleration("workload", "Equal", job.owner, "NoSchedule")
    if not job.tolerates_loan:
        return (owner,)
    return owner, Toleration(ON_LOAN, "Equal", job.owner, "NoSchedule")
