"""Training gangs: whole or not at all, with checkpoints, evictions and resubmission.

A gang makes progress only while whole (an elastic one while it has its minimum, at its share of the speed). An
evicted gang comes back as a new set of pods under the same workload identity, from its last checkpoint; members that
an eviction left behind hang, as collective communication does, because nobody here tidies up after a split. Where
jobs come from is ``jobs``'.
"""

from __future__ import annotations

from datetime import timedelta

from rebalancer.core.facts import GangSpec, Pod, PodPhase, Requirement, Selector
from rebalancer.core.units import GangId, PodUid
from rebalancer.simulate.accounting import Accounting
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.budgets import Budgets
from rebalancer.simulate.gangs import Gang, member_pod
from rebalancer.simulate.kubelet import Kubelet, Life
from rebalancer.simulate.scenario import JobSpec
from rebalancer.simulate.store import Store

_TIDY = 60.0
"""Seconds from the end of a job to the removal of its objects, and from a lost member to the restart of its gang."""


class Training:
    """The queue's gangs and what becomes of them."""

    def __init__(
        self, kubelet: Kubelet, budgets: Budgets, books: Accounting, *, store: Store, agenda: Agenda, resubmit: float
    ) -> None:
        self._store, self._agenda, self._kubelet = store, agenda, kubelet
        self._budgets, self._books, self._resubmit = budgets, books, resubmit
        self.gangs: dict[GangId, Gang] = {}
        self._gang_of: dict[PodUid, Gang] = {}
        kubelet.on_running.append(self._on_running)
        kubelet.on_deleting.append(lambda pod, t: self._on_leaving(pod, t, graceful=True))
        kubelet.on_lost.append(lambda pod, t: self._on_leaving(pod, t, graceful=False))
        kubelet.on_gone.append(self._on_gone)

    # --- submission

    def submit(self, job: JobSpec, stream: str, t: float, *, done: float = 0.0, attempt: int = 0) -> None:
        """A new gang, all its pods pending."""
        gang = Gang(job, stream, attempt, done, done, self._store.new_uid(f"group/{job.name}"), "")
        self.gangs[gang.id] = gang
        spec = GangSpec(gang.group_uid, gang.id, job.namespace, job.pods, gang.minimum, job.queue, f"Job/{job.name}")
        self._store.put_group(spec, t)
        if job.budget is not None:
            chosen: Selector = (Requirement("job-name", "In", (job.name,)),)
            gang.budget_uid = self._budgets.add(job.namespace, job.name, chosen, job.budget, scalable=False, t=t)
        for index in range(job.pods):
            self._add_member(gang, index, t)

    def _add_member(self, gang: Gang, index: int, t: float) -> None:
        job = gang.job
        pod = member_pod(gang, index, self._store.new_uid(f"pod/{job.name}"), self._agenda, t)
        gang.members[pod.uid] = index
        self._gang_of[pod.uid] = gang
        self._kubelet.create(pod, Life(job.start_seconds, job.checkpoint_seconds, job.hangs), t)

    # --- progress

    def _on_running(self, pod: Pod, t: float) -> None:
        gang = self._gang_of.get(pod.uid)
        if gang is None:
            return
        self._stop(gang, t)
        gang.running[pod.uid] = None
        self._go(gang, t)

    def _go(self, gang: Gang, t: float) -> None:
        placed = [uid for uid in gang.members if self._store.pods[uid].node]
        if gang.broken or len(gang.running) < max(gang.minimum, len(placed)):
            return
        gang.whole_since, gang.ever_ran, gang.turn = t, True, gang.turn + 1
        gang.rate = len(gang.running) / gang.job.pods
        turn, left = gang.turn, (gang.job.seconds - gang.done) / gang.rate
        for uid in gang.running:
            self._store.change_pod(uid, t, finishes_at=self._agenda.clock(t) + timedelta(seconds=left))
        self._agenda.at(t + left, lambda at: self._finish(gang, turn, at))
        self._agenda.at(t + gang.job.checkpoint_period, lambda at: self._checkpoint(gang, turn, at))

    def _stop(self, gang: Gang, t: float) -> None:
        """Book what was done since the gang became whole."""
        if gang.whole_since is None:
            return
        gang.done += (t - gang.whole_since) * gang.rate
        self._books.ran(t - gang.whole_since, [self._store.pods[uid] for uid in gang.running])
        gang.whole_since, gang.turn = None, gang.turn + 1

    def _checkpoint(self, gang: Gang, turn: int, t: float) -> None:
        if gang.turn != turn or gang.whole_since is None:
            return
        gang.saved = gang.done + (t - gang.whole_since) * gang.rate
        at, progress = self._agenda.clock(t), gang.saved / gang.job.seconds
        for uid in gang.running:
            self._store.change_pod(uid, t, checkpointed_at=at, progress=progress)
        self._agenda.at(t + gang.job.checkpoint_period, lambda at: self._checkpoint(gang, turn, at))

    def notified(self, gang_id: GangId, t: float) -> None:
        """The gang was told to leave; one that asked for notice saves its work now."""
        gang = self.gangs.get(gang_id)
        if gang is not None and gang.job.notice_seconds > 0:
            turn = gang.turn
            self._agenda.at(t + gang.job.checkpoint_seconds, lambda at: self._checkpoint(gang, turn, at))

    def _finish(self, gang: Gang, turn: int, t: float) -> None:
        if gang.turn != turn:
            return
        self._stop(gang, t)
        gang.finished = True
        for uid in list(gang.members):
            self._kubelet.finish(uid, t)
        self._agenda.at(t + _TIDY, lambda at: self._tidy(gang, at))

    def _tidy(self, gang: Gang, t: float) -> None:
        for uid in list(gang.members):
            self._kubelet.delete(uid, t)
        if not gang.members:
            self._forget(gang, t)

    # --- leaving

    def evicted(self, uid: PodUid) -> None:
        """The API accepted our eviction of this pod (told before it starts to leave)."""
        gang = self._gang_of.get(uid)
        if gang is not None:
            gang.evicted[uid] = None
            self._books.evicted(gang.id)

    def _on_leaving(self, pod: Pod, t: float, *, graceful: bool) -> None:
        gang = self._gang_of.get(pod.uid)
        if gang is None or gang.finished or pod.uid not in gang.running:
            return
        self._stop(gang, t)
        held = [self._store.pods[uid] for uid in gang.running]
        del gang.running[pod.uid]
        if gang.minimum < gang.job.pods and len(gang.running) >= gang.minimum:
            self._go(gang, t)
        elif not gang.broken:
            gang.broken = True
            if graceful and gang.job.checkpoint_seconds <= gang.job.grace_seconds:
                gang.saved = gang.done
            self._books.lost(gang.done - gang.saved, held)

    def _on_gone(self, pod: Pod, t: float) -> None:
        gang = self._gang_of.pop(pod.uid, None)
        if gang is None:
            return
        index = gang.members.pop(pod.uid)
        ours = pod.uid in gang.evicted
        gang.running.pop(pod.uid, None)
        if not gang.members:
            self._over(gang, t)
        elif gang.minimum < gang.job.pods and not gang.broken and not gang.finished:
            self._agenda.at(t + self._resubmit, lambda at: self._regrow(gang, index, at))
        elif not ours and not gang.finished:
            gang.broken = True
            self._agenda.at(t + _TIDY, lambda at: self._restart(gang, at))

    def _over(self, gang: Gang, t: float) -> None:
        self._forget(gang, t)
        if not gang.finished:
            job, attempt, saved = gang.job, gang.attempt + 1, gang.saved
            again = t + self._resubmit
            self._agenda.at(again, lambda at: self.submit(job, gang.stream, at, done=saved, attempt=attempt))

    def _regrow(self, gang: Gang, index: int, t: float) -> None:
        if gang.members and not gang.broken and not gang.finished:
            self._stop(gang, t)
            self._add_member(gang, index, t)
            self._go(gang, t)

    def _restart(self, gang: Gang, t: float) -> None:
        """Members left behind by a lost node are ended, so that the gang can start anew."""
        for uid in list(gang.members):
            self._kubelet.delete(uid, t)

    def _forget(self, gang: Gang, t: float) -> None:
        if self.gangs.pop(gang.id, None) is None:
            return
        self._store.remove_group(gang.group_uid, t)
        if gang.budget_uid:
            self._budgets.remove(gang.budget_uid, t)

    # --- questions

    def busy(self, uid: PodUid) -> bool:
        """Whether the pod computes: its gang is whole."""
        gang = self._gang_of.get(uid)
        return gang is not None and gang.whole_since is not None and uid in gang.running

    def split(self) -> list[GangId]:
        """Gangs of which we evicted some members while others stay, below what they can live with."""
        return [gang.id for gang in self.gangs.values() if gang.evicted and self._is_split(gang)]

    def _is_split(self, gang: Gang) -> bool:
        stay = sum(1 for uid in gang.members if self._stays(self._store.pods[uid]))
        return 0 < stay < gang.minimum

    @staticmethod
    def _stays(pod: Pod) -> bool:
        return pod.phase is PodPhase.RUNNING and pod.deleting_at is None

    def waiting(self, stream: str) -> int:
        """Gangs of a stream that have not started yet."""
        return sum(1 for gang in self.gangs.values() if gang.stream == stream and gang.waiting)

    def close(self, t: float) -> None:
        """Book the running work of all gangs up to ``t``, without ending it."""
        for gang in self.gangs.values():
            if gang.whole_since is not None:
                gang.done += (t - gang.whole_since) * gang.rate
                self._books.ran(t - gang.whole_since, [self._store.pods[uid] for uid in gang.running])
                gang.whole_since = t
