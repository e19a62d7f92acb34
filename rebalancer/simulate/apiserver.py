"""Answers to the actor's calls, as a real API server gives them (CASES E09).

Checks in the server's order: existence, uid, then what may bypass budgets, then one budget, then its count. A dry
run checks the same and takes nothing. Faults may answer in its place, with or without the call having landed.
Who calls, and whether it is wise, is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rebalancer.core.facts import Pod, PodPhase
from rebalancer.core.plan import Member
from rebalancer.core.protocol.calls import (
    Answer,
    AnswerKind,
    Call,
    EvictPod,
    GiveNotice,
    ListPods,
    PatchNode,
    ReadBudgets,
    ReadMembers,
    ReadNode,
)  # fmt: skip
from rebalancer.simulate.budgets import Budgets
from rebalancer.simulate.kubelet import Kubelet
from rebalancer.simulate.store import Store
from rebalancer.simulate.training import Training


@dataclass(slots=True)
class Trouble:
    """An injected answer: for these kinds of calls (all when empty), ``left`` times (negative: without end)."""

    kind: AnswerKind
    calls: tuple[str, ...]
    left: int
    lands: bool
    retry_after: float | None


class ApiServer:
    """The one that writes on behalf of others."""

    def __init__(self, store: Store, kubelet: Kubelet, budgets: Budgets, training: Training) -> None:
        self._store, self._kubelet, self._budgets, self._training = store, kubelet, budgets, training
        self.troubles: list[Trouble] = []
        self.refused = 0
        self.evictions = 0

    def answer(self, call: Call, t: float) -> Answer:
        """The answer to one call at ``t``."""
        trouble = self._trouble(call)
        if trouble is None:
            return self._perform(call, t)
        if trouble.lands:
            self._perform(call, t)
        return Answer(trouble.kind, retry_after=trouble.retry_after, message="injected")

    def _trouble(self, call: Call) -> Trouble | None:
        for trouble in self.troubles:
            if trouble.left != 0 and (not trouble.calls or call.kind in trouble.calls):
                trouble.left -= 1
                return trouble
        return None

    def _perform(self, call: Call, t: float) -> Answer:
        match call:
            case PatchNode():
                return self._patch(call, t)
            case GiveNotice():
                return self._notice(call, t)
            case EvictPod():
                return self._evict(call, t)
            case _:
                return self._look(call)

    def _look(self, call: ReadNode | ListPods | ReadMembers | ReadBudgets) -> Answer:
        match call:
            case ReadNode():
                node = self._store.nodes.get(call.node_name)
                return Answer(AnswerKind.OK, node=node) if node else _gone("node", call.node_name)
            case ListPods():
                return Answer(AnswerKind.OK, pods=tuple(self._on_or_bound_for(call.node_name)))
            case ReadMembers():
                return Answer(AnswerKind.OK, pods=tuple(self._read(call.members)))
            case ReadBudgets():
                found = [item for item in self._store.budgets.values() if item.namespace == call.namespace]
                return Answer(AnswerKind.OK, budgets=tuple(found))

    def _patch(self, call: PatchNode, t: float) -> Answer:
        node = self._store.nodes.get(call.node_name)
        if node is None:
            return _gone("node", call.node_name)
        if node.uid != call.node:
            return Answer(AnswerKind.CONFLICT, message=f"the uid of {node.name} is {node.uid}, not {call.node}")
        if node.resource_version != call.resource_version:
            return Answer(AnswerKind.CONFLICT, message=f"{node.name} has been modified, read it again")
        changed = replace(node, taints=call.taints, loan=call.loan)
        return Answer(AnswerKind.OK, node=self._store.put_node(changed, t) if changed != node else node)

    def _on_or_bound_for(self, node: str) -> list[Pod]:
        nominated = [self._store.pods[uid] for uid in self._store.unbound]
        return self._store.pods_on(node) + [pod for pod in nominated if pod.nominated_node == node]

    def _read(self, members: tuple[Member, ...]) -> list[Pod]:
        found = [self._store.pods.get(member.uid) for member in members]
        return [pod for pod in found if pod is not None]

    def _notice(self, call: GiveNotice, t: float) -> Answer:
        if not self._read(call.members):
            return _gone("gang", call.gang)
        self._training.notified(call.gang, t)
        return Answer(AnswerKind.OK)

    def _evict(self, call: EvictPod, t: float) -> Answer:
        uid = self._store.by_name.get((call.member.namespace, call.member.name))
        if uid is None:
            return _gone("pod", call.member.name)
        if uid != call.member.uid:
            return Answer(AnswerKind.CONFLICT, message=f"the uid of {call.member.name} is {uid}, not {call.member.uid}")
        pod = self._store.pods[uid]
        refusal = None if self._bypasses(pod) else self._refusal(pod)
        if refusal is not None:
            self.refused += 1
            return refusal
        if not call.dry_run:
            self._let_go(pod, t)
        return Answer(AnswerKind.OK)

    def _let_go(self, pod: Pod, t: float) -> None:
        if pod.deleting_at is None and not pod.terminal:
            self.evictions += 1
            self._training.evicted(pod.uid)
        self._kubelet.delete(pod.uid, t)

    @staticmethod
    def _bypasses(pod: Pod) -> bool:
        """Ended, pending and already leaving pods cost no budget anything."""
        return pod.terminal or pod.phase is PodPhase.PENDING or pod.deleting_at is not None

    def _refusal(self, pod: Pod) -> Answer | None:
        covering = self._budgets.covering(pod)
        if len(covering) > 1:
            return Answer(AnswerKind.TWO_BUDGETS, message=f"{pod.name} has more than one budget")
        if covering and covering[0].allowed < 1:
            message = f"budget {covering[0].name} has {covering[0].healthy} healthy pods and allows none to go"
            return Answer(AnswerKind.BLOCKED, message=message)
        return None


def _gone(what: str, name: str) -> Answer:
    return Answer(AnswerKind.GONE, message=f"{what} {name!r} not found")
