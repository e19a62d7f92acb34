"""One guarded change of one node: read it fresh, patch what was read, believe only what comes back.

A conflict reads again; so does a patch whose answer was lost: the edit is idempotent. A node that someone else
keeps changing is tried ``contended_tries`` times. What to change is the edit's business (``guard``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rebalancer.core.facts import Node
from rebalancer.core.policy import Acting
from rebalancer.core.protocol.calls import Answer, AnswerKind, PatchNode, ReadNode
from rebalancer.core.protocol.guard import Edit
from rebalancer.core.protocol.pace import Ask
from rebalancer.core.protocol.site import Question, why
from rebalancer.core.protocol.tables import EDIT, Edited, Editing, move
from rebalancer.core.reasons import Because, Reason


class NodeEdit:
    """A change that ends CONFIRMED or REFUSED (then ``because`` says why).

    ``patched`` is whether a patch was ever sent: if so and it was refused, the node may still have changed.
    """

    def __init__(self, acting: Acting, node_name: str, edit: Callable[[Node], Edit]) -> None:
        self.phase = Editing.READING
        self.because: Because | None = None
        self.node: Node | None = None
        self.patched = False
        self.tries = 0
        self._acting = acting
        self._name = node_name
        self._edit = edit
        self._ask = Ask(acting, node_name)
        self._patch: PatchNode | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will be asked."""
        return self.phase in (Editing.CONFIRMED, Editing.REFUSED)

    @property
    def confirmed(self) -> bool:
        """Whether the node is as wanted."""
        return self.phase is Editing.CONFIRMED

    @property
    def out(self) -> bool:
        """Whether an answer is awaited."""
        return self._ask.out

    def due(self, now: datetime) -> datetime | None:
        """When the next call may be made."""
        return None if self.over else self._ask.due(now)

    def questions(self, now: datetime) -> list[Question]:
        """The next call, if it may be made now."""
        if self.over or not self._ask.ready(now):
            return []
        self._ask.sent()
        if self._patch is None:
            return [Question(ReadNode(self._name), self._read)]
        self.patched = True
        return [Question(self._patch, self._answered)]

    def _read(self, answer: Answer, now: datetime) -> None:
        if answer.kind is AnswerKind.OK and answer.node is not None:
            self._ask.went()
            self._judge(answer.node)
        else:
            self._failed(answer, now)

    def _judge(self, node: Node) -> None:
        self.node = node
        wanted = self._edit(node)
        if wanted is None:
            self._move(Edited.SO)
        elif isinstance(wanted, Because):
            self._refuse(wanted)
        else:
            self._patch = wanted
            self._move(Edited.WANTED)

    def _answered(self, answer: Answer, now: datetime) -> None:
        self._patch = None
        if answer.kind is AnswerKind.OK and answer.node is not None:
            self._ask.went()
            self.node = answer.node
            self._believe(self._edit(answer.node))
        elif answer.kind is AnswerKind.CONFLICT:
            self._ask.went()
            self._contended("it changed while it was patched")
        else:
            self._failed(answer, now)

    def _believe(self, left: Edit) -> None:
        if left is None:
            self._move(Edited.SO)
        else:
            self._contended("the patch did not stay")

    def _contended(self, reason: str) -> None:
        self.tries += 1
        if self.tries >= self._acting.contended_tries:
            self._refuse(Because(Reason.CONTENDED, {"node": self._name, "why": reason}))
        else:
            self._move(Edited.AGAIN)

    def _failed(self, answer: Answer, now: datetime) -> None:
        again = self._ask.failed(answer, now)
        if answer.kind is AnswerKind.GONE:
            self._refuse(Because(Reason.NODE_GONE, {"node": self._name}))
        elif answer.kind is AnswerKind.FORBIDDEN or not again:
            self._refuse(why(answer, self._name, self._acting.call_timeout.total_seconds()))
        else:
            self._move(Edited.AGAIN)

    def _refuse(self, because: Because) -> None:
        self.because = because
        self._move(Edited.FAILED)

    def _move(self, event: Edited) -> None:
        self.phase = move(EDIT, self.phase, event)
