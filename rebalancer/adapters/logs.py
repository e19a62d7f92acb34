"""How a process logs: one line an event on stderr, as text for people or as one JSON object a line for collectors.

Lines of the libraries under us come in the same shape. The ids of a decision (plan, loan, gang, node) are keys of
their own, so that a collector can find all lines of one. Data for people goes to stdout and never through here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import structlog

from rebalancer.core.protocol.calls import (
    Call,
    EvictPod,
    GiveNotice,
    ListPods,
    PatchNode,
    ReadBudgets,
    ReadMembers,
    ReadNode,
)

if TYPE_CHECKING:
    from rebalancer.settings import LogSettings

STAMP = "at"
"""Key of the moment: RFC 3339 in UTC."""


def for_roles(settings: LogSettings) -> None:
    """For `run`: as the settings say, the standard library's loggers included."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    last: list[Any] = [structlog.processors.dict_tracebacks] if settings.format == "json" else []
    last += [_json if settings.format == "json" else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    _configure([*_shared(), *last], level)
    handler = _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *_shared()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    for before in [one for one in root.handlers if isinstance(one, _Stderr)]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))  # the libraries' own good news is nobody's


def for_people() -> None:
    """For commands at a terminal: only what is wrong, beside the data."""
    _configure([*_shared(), structlog.dev.ConsoleRenderer(colors=False)], logging.WARNING)


def concerned(call: Call) -> dict[str, str]:
    """The ids that a call of act is about, as keys of a log line."""
    match call:
        case PatchNode():
            mark = {"loan": call.loan.loan, "plan": call.loan.plan} if call.loan is not None else {}
            return {"node": call.node_name, **mark}
        case ReadNode() | ListPods():
            return {"node": call.node_name}
        case GiveNotice():
            return {"gang": call.gang}
        case EvictPod():
            return {"plan": call.plan, "pod": f"{call.member.namespace}/{call.member.name}"}
        case ReadMembers():
            return {"pod": ",".join(f"{one.namespace}/{one.name}" for one in call.members[:1])}
        case ReadBudgets():
            return {"namespace": call.namespace}


def _configure(processors: Sequence[Any], level: int) -> None:
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def _shared() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key=STAMP),
    ]


def _json(_: object, __: str, event: Mapping[str, Any]) -> str:
    """What JSON does not know is spelled: a line that cannot be written would be lost."""
    return orjson.dumps(dict(event), default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class _Stderr(logging.StreamHandler[Any]):
    """To whatever stderr is at the moment: it may have been replaced since."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self.stream = sys.stderr
        super().emit(record)
