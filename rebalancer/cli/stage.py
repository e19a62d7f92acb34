"""Where a day is shown: the live view on a terminal, plain lines elsewhere.

Both take steps and show them on stderr at a bounded rate: a slow terminal costs at most one drawing a
frame. Nothing is worded here that `view` or the core could word.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

from rich.console import Console
from rich.live import Live

from rebalancer.cli.view import GLYPHS, PLAIN_GLYPHS, Scene
from rebalancer.simulate.stepview import StepView, Told

FRAMES_PER_SECOND = 4
LEAST_WIDTH, LEAST_HEIGHT = 60, 16
"""Smaller terminals get lines."""


class Screen:
    """Shows a scene while the context is open; redraws at a bounded rate, and once more at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        plain = not (console.encoding or "").lower().startswith("utf")
        self.scene = Scene(glyphs=PLAIN_GLYPHS if plain else GLYPHS)
        self._live = Live(self.scene, console=console, auto_refresh=False, screen=False, vertical_overflow="crop")
        self._drawn = float("-inf")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.refresh()
        self._live.stop()

    def show(self, view: StepView) -> None:
        """Take in a step; draw it unless the last drawing was less than a frame ago."""
        self.scene.see(view)
        now = time.monotonic()
        if now - self._drawn >= 1 / FRAMES_PER_SECOND:
            self._drawn = now
            self._live.refresh()


class Lines:
    """Progress as plain lines, for pipes and logs: one an hour of the day, and every decision."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._hour: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to take back."""

    def show(self, view: StepView) -> None:
        """Say what is new."""
        self._say(self._of_decision(one) for one in view.decisions)
        hour = (view.moment.day, view.moment.hour)
        if hour != self._hour or view.step == view.steps:
            self._hour = hour
            self._say([self._of_step(view)])

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @staticmethod
    def _of_decision(told: Told) -> str:
        return f"{told.at:%Y-%m-%d %H:%M}Z {told.method} {told.pool}: {told.sentence} [{told.id}]"

    @staticmethod
    def _of_step(view: StepView) -> str:
        ribbon = view.ribbon
        done = view.step / max(view.steps, 1)
        lent = f"{ribbon.lent} of {ribbon.owned} GPUs lent, demand {ribbon.demand:.0f}"
        return f"{view.moment:%Y-%m-%d %H:%M}Z {done:.0%}: {lent}"


def stage(console: Console, *, headless: bool) -> Screen | Lines:
    """The live view on a terminal, lines elsewhere or when asked for."""
    large = console.width >= LEAST_WIDTH and console.height >= LEAST_HEIGHT
    roomy = console.is_terminal and not console.is_dumb_terminal and large
    return Screen(console) if roomy and not headless else Lines(console)
