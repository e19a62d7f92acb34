"""Nodes that act has handed back, while what was last seen of them still shows them lent.

Outcomes and objects come on streams of their own, in any order. In between such a node is neither lent nor at home,
and whoever counts what stands ready must not take it for missing: another gang would have to go for nothing.
"""

from __future__ import annotations

from rebalancer.core.facts import Node
from rebalancer.core.inventory import Inventory
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.units import NodeUid, PoolName


def emptying(inventory: Inventory, loan: Loan) -> bool:
    """Whether its node is closed and all that holds GPUs there has been told to go, however long that takes (F32)."""
    node = inventory.nodes.get(loan.node)
    if node is None or loan.phase is not LoanPhase.RECALLING:
        return False
    return all(pod.deleting_at is not None for pod in inventory.guests(node.name) if pod.gpus is None or pod.gpus > 0)


class Arrivals:
    """Loans that are returned by the ledger and not yet by what the node shows; at most one a node."""

    def __init__(self) -> None:
        """Nobody arrives."""
        self._loans: dict[NodeUid, Loan] = {}

    def handed_back(self, loan: Loan, node: Node | None) -> None:
        """Its node is the owner's again; ``node`` is how it was last seen."""
        if node is not None and node.mark is not None and node.mark.loan == loan.id:
            self._loans[loan.node] = loan

    def seen(self, node: Node) -> None:
        """It was seen anew: it has arrived, unless it still bears the old mark."""
        loan = self._loans.get(node.uid)
        if loan is not None and (node.mark is None or node.mark.loan != loan.id):
            del self._loans[node.uid]

    def forget(self, uid: NodeUid) -> None:
        """It is gone, or it is lent after all."""
        self._loans.pop(uid, None)

    def loan(self, uid: NodeUid) -> Loan | None:
        """The loan from which a node arrives."""
        return self._loans.get(uid)

    def of(self, lender: PoolName) -> list[Loan]:
        """Those of a lender."""
        return [loan for loan in self._loans.values() if loan.lender == lender]
