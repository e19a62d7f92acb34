"""PodDisruptionBudgets and their arithmetic, as the disruption controller does it.

Measured on a real control plane and kept: a ``maxUnavailable`` budget over pods whose owner has no scale
subresource (a Job, a PodGroup) allows nothing for ever. Thresholds are plain numbers here.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.core.facts import Budget, Pod, Selector
from rebalancer.simulate.fitting import matches
from rebalancer.simulate.scenario import BudgetSpec
from rebalancer.simulate.store import Store


@dataclass(slots=True)
class _Kept:
    uid: str
    namespace: str
    name: str
    selector: Selector
    spec: BudgetSpec
    scalable: bool
    closed: bool = False


class Budgets:
    """All budgets; status follows the pods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}
        self._by_namespace: dict[str, list[_Kept]] = {}
        store.pod_watchers.append(self._pod_changed)

    def add(self, namespace: str, name: str, selector: Selector, spec: BudgetSpec, *, scalable: bool, t: float) -> str:
        """A new budget; its uid comes back."""
        uid = self._store.new_uid(f"budget/{namespace}/{name}")
        kept = _Kept(uid, namespace, name, selector, spec, scalable)
        self._kept[uid] = kept
        self._by_namespace.setdefault(namespace, []).append(kept)
        self._refresh(kept, t)
        return uid

    def remove(self, uid: str, t: float) -> None:
        """The budget object is deleted."""
        kept = self._kept.pop(uid)
        self._by_namespace[kept.namespace].remove(kept)
        self._store.remove_budget(uid, t)

    def close(self, namespace: str, name: str, t: float, *, closed: bool) -> None:
        """Let budgets of this name (all of the namespace when "") allow nothing, or count again."""
        for kept in self._by_namespace.get(namespace, []):
            if name in ("", kept.name):
                kept.closed = closed
                self._refresh(kept, t)

    def covering(self, pod: Pod) -> list[Budget]:
        """Budgets that cover a pod."""
        kept = self._by_namespace.get(pod.namespace, [])
        return [self._store.budgets[item.uid] for item in kept if matches(item.selector, pod.labels)]

    def _pod_changed(self, old: Pod | None, new: Pod | None, t: float) -> None:
        pod = new or old
        if pod is None or (old is not None and new is not None and _weight(old) == _weight(new)):
            return
        for kept in self._by_namespace.get(pod.namespace, []):
            if matches(kept.selector, pod.labels):
                self._refresh(kept, t)

    def _refresh(self, kept: _Kept, t: float) -> None:
        covered = [
            pod
            for pod in self._store.pods.values()
            if pod.namespace == kept.namespace and not pod.terminal and matches(kept.selector, pod.labels)
        ]
        healthy = sum(1 for pod in covered if pod.ready and pod.deleting_at is None)
        expected, allowed = self._allowed(kept, len(covered), healthy)
        budget = Budget(
            uid=kept.uid,
            namespace=kept.namespace,
            name=kept.name,
            selector=kept.selector,
            allowed=0 if kept.closed else allowed,
            expected=expected,
            healthy=healthy,
            min_available=kept.spec.min_available,
            max_unavailable=kept.spec.max_unavailable,
        )
        if self._store.budgets.get(kept.uid) != budget:
            self._store.put_budget(budget, t)

    @staticmethod
    def _allowed(kept: _Kept, covered: int, healthy: int) -> tuple[int, int]:
        """Pods expected and disruptions allowed."""
        if kept.spec.min_available is not None:
            return covered, max(0, healthy - kept.spec.min_available)
        if not kept.scalable:
            return 0, 0
        return covered, max(0, healthy - (covered - (kept.spec.max_unavailable or 0)))


def _weight(pod: Pod) -> tuple[bool, bool, bool]:
    """What of a pod a budget counts."""
    return pod.terminal, pod.ready, pod.deleting_at is None
