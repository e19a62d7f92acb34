"""Exit codes, and the one place that turns what went wrong into a sentence on stderr and a code.

0 ok, 1 failure, 2 usage, 3 would change or not safe, 4 cannot reach. Every command is in a group of this
class; an error that is not named here is a defect and keeps its traceback.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

from rebalancer.adapters.policyfile import PolicyRefused
from rebalancer.adapters.why import UnknownTarget
from rebalancer.settings import NoCluster
from rebalancer.simulate.loading import ScenarioError


class Code(IntEnum):
    """What a command's exit code says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNSAFE = 3
    UNREACHABLE = 4


HELP = (
    "Exit codes: 0 ok; 1 failure; 2 wrong usage; 3 something would change, or the result is not safe; "
    "4 cannot reach (the address tried is said)."
)


class Refused(Exception):  # noqa: N818 - an answer, not a defect
    """A command ends with a sentence and a code."""

    def __init__(self, message: str, code: Code = Code.FAILED) -> None:
        super().__init__(message)
        self.code = code


class Commands(TyperGroup):
    """A group whose expected errors end in a sentence and a documented code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the outermost group words the error."""
        try:
            return super().invoke(ctx)
        except (Refused, PolicyRefused, UnknownTarget, ScenarioError, NoCluster, OSError) as error:
            say(str(error.args[0]) if isinstance(error, LookupError) else str(error))
            raise typer.Exit(code_of(error)) from None


def code_of(error: BaseException) -> Code:
    """The exit code of an expected error; what could not be reached is a ConnectionError or a time-out."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, NoCluster):
        return Code.USAGE
    return Code.UNREACHABLE if isinstance(error, ConnectionError | TimeoutError) else Code.FAILED


def say(message: str) -> None:
    """Talk to the person at the terminal."""
    typer.echo(message, err=True)
