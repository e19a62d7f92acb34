"""The day's ribbon: demand and lent GPUs of the lending pools over the day, one column a span of steps.

Columns keep the largest value of their span, so that a spike of one minute is seen. Memory is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from rich.text import Text

from rebalancer.simulate.stepview import RibbonSample, StepView

COLUMNS = 480
"""Spans remembered: more than a wide terminal shows."""
EIGHTHS = " ▁▂▃▄▅▆▇█"
LABEL = 8
HOUR = timedelta(hours=1)


@dataclass(slots=True)
class Ribbon:
    """Largest demand and lent GPUs by span of a day."""

    _samples: list[tuple[int, float, int]] = field(default_factory=list)

    def add(self, step: int, sample: RibbonSample) -> None:
        """Remember a step; neighbours are merged once there are more than can be shown."""
        self._samples.append((step, sample.demand, sample.lent))
        if len(self._samples) >= 2 * COLUMNS:
            pairs = zip(self._samples[::2], self._samples[1::2], strict=True)
            self._samples = [(a[0], max(a[1], b[1]), max(a[2], b[2])) for a, b in pairs]

    def render(self, view: StepView, width: int, *, tall: bool) -> list[Text]:
        """Both bands, scaled to what the pools own, and the hours below."""
        columns, top = max(width - LABEL - 1, 1), max(view.ribbon.owned, 1)
        demand = [0.0] * columns
        lent = [0.0] * columns
        for step, wanted, out in self._samples:
            column = min(step * columns // max(view.steps, 1), columns - 1)
            demand[column] = max(demand[column], wanted)
            lent[column] = max(lent[column], out)
        rows = 3 if tall else 1
        bands = band("demand", demand, top, rows, "cyan") + band("lent", lent, top, rows, "green")
        return [*bands, hours(view, columns)]


def band(label: str, values: list[float], top: float, rows: int, style: str) -> list[Text]:
    """Bars of eighths, ``rows`` lines high; what is not zero is seen."""
    lines = []
    for row in range(rows - 1, -1, -1):
        line = Text(f"{label if row == rows - 1 else '':<{LABEL}}", style="dim", no_wrap=True)
        eighths = [min(max(round(value / top * 8 * rows), value > 0) - 8 * row, 8) for value in values]
        line.append("".join(EIGHTHS[max(count, 0)] for count in eighths), style=style)
        lines.append(line)
    return lines


def hours(view: StepView, columns: int) -> Text:
    """The axis: hours of the day at the columns where they fall, never overlapping."""
    length = (view.moment - view.started) / max(view.step, 1) * view.steps
    axis = [" "] * columns
    mark, free = view.started.replace(minute=0, second=0, microsecond=0) + HOUR, 0
    while length and mark <= view.started + length:
        place = int((mark - view.started) / length * columns)
        if mark.hour % 3 == 0 and free <= place <= columns - 2:
            axis[place : place + 2] = f"{mark:%H}"
            free = place + 4
        mark += HOUR
    return Text(" " * LABEL + "".join(axis), style="dim", no_wrap=True)
