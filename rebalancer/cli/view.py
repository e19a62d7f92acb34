"""The live view of a simulated day: rooms of GPU squares, the day's ribbon, the last decisions.

From 80 x 24 upwards; glyphs tell states apart without colour (NO_COLOR is honoured by the console). Only
drawing: what it shows was made elsewhere, and it draws no faster and no oftener than it is asked to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.text import Text

from rebalancer.cli.ribbon import Ribbon
from rebalancer.core.instructions import PoolState
from rebalancer.simulate.stepview import NodeSquare, Standing, StepView, Told

KEPT_DECISIONS = 20
COLOURS = {"inference": "cyan", "training": "green", "batch": "yellow"}
GLYPHS = {
    "busy": "■",
    "idle": "□",
    "unknown": "?",
    "lent": "▲",
    "lent-idle": "△",
    "closing": "◆",
    "away": "×",
}
PLAIN_GLYPHS = {
    "busy": "#",
    "idle": ".",
    "unknown": "?",
    "lent": "L",
    "lent-idle": "l",
    "closing": "C",
    "away": "x",
}
LEGEND = (("busy", "busy"), ("idle", "idle"), ("lent", "lent, busy"), ("lent-idle", "lent, idle"))
LEGEND_REST = (("closing", "closing"), ("unknown", "unknown"), ("away", "out"))
SCALES = (1, 2, 4, 8)
"""GPUs a square may stand for: the smallest that fits the screen is taken."""


@dataclass(slots=True)
class Scene:
    """What has been seen of the day so far; renders itself to whatever console asks."""

    glyphs: dict[str, str] = field(default_factory=lambda: GLYPHS)
    view: StepView | None = None
    ribbon: Ribbon = field(default_factory=Ribbon)
    decisions: deque[Told] = field(default_factory=lambda: deque(maxlen=KEPT_DECISIONS))

    def see(self, view: StepView) -> None:
        """Take in a step."""
        self.view = view
        self.ribbon.add(view.step, view.ribbon)
        self.decisions.extend(view.decisions)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Header, rooms, ribbon and as many decisions as the height leaves room for."""
        width, height = options.max_width, options.height or console.height
        if self.view is None:
            yield Text("the day begins")
            return
        ribbon = self.ribbon.render(self.view, width, tall=height >= 32)
        head = [header(self.view, width)]
        rooms = fitted_rooms(self.view, self.glyphs, width, height - len(head) - len(ribbon) - 4)
        left = max(height - len(head) - len(rooms) - len(ribbon) - 2, 1)
        told = [decision_line(one, width) for one in list(self.decisions)[-left:]]
        yield Group(*head, *rooms, legend(self.glyphs), *ribbon, *reversed(told))


def header(view: StepView, width: int) -> Text:
    """Where the day stands."""
    done = view.step / max(view.steps, 1)
    bar = "━" * round(done * 20)
    told = Text(no_wrap=True, overflow="ellipsis")
    told.append(f"{view.moment:%a %H:%M} UTC ", style="bold")
    told.append(bar, style="magenta")
    told.append("─" * (20 - len(bar)), style="dim")
    told.append(f" {done:4.0%}  ")
    lent = sum(node.standing is Standing.LENT for node in view.nodes)
    closing = sum(node.standing is Standing.CLOSING for node in view.nodes)
    told.append(f"{lent} nodes lent", style="green" if lent else "dim")
    told.append(f", {closing} changing hands", style="red" if closing else "dim")
    told.truncate(width)
    return told


def fitted_rooms(view: StepView, glyphs: dict[str, str], width: int, height: int) -> list[Text]:
    """All rooms, with as few GPUs a square as the height allows."""
    for scale in SCALES:
        lines = [line for pool in view.pools for line in room(pool, view.nodes, glyphs, width, scale)]
        if len(lines) <= height:
            return lines
    return lines[: max(height, 1)]


def room(pool: PoolState, nodes: Iterable[NodeSquare], glyphs: dict[str, str], width: int, scale: int) -> list[Text]:
    """A pool's title and its nodes, each a run of squares, wrapped to the width."""
    lines = [title(pool, width)]
    row = Text(" ")
    for node in nodes:
        if node.pool != pool.pool or not node.gpus:
            continue
        squares = node_squares(node, glyphs, scale)
        if len(row) + len(squares) + 1 > width:
            lines.append(row)
            row = Text(" ")
        row.append(" ").append_text(squares)
    return [*lines, row] if len(row) > 1 else lines


def title(pool: PoolState, width: int) -> Text:
    """A pool's name and its numbers."""
    told = Text(no_wrap=True, overflow="ellipsis")
    told.append(f"{pool.pool:<12}", style="bold")
    told.append(f"{pool.owned:>4} GPUs {pool.held:>4} held {pool.pending:>3} waiting")
    if pool.lent or pool.window_open:
        told.append(f"  {pool.lent:>3} lent", style="green" if pool.lent else "dim")
        told.append(f"  demand {pool.demand:.0f}+{pool.headroom:.0f}")
        told.append("  may lend" if pool.window_open else "  window shut", style="dim")
    if pool.mode == "shadow" and pool.window_open:
        told.append("  shadow", style="dim")
    told.truncate(width)
    return told


def node_squares(node: NodeSquare, glyphs: dict[str, str], scale: int) -> Text:
    """A node's GPUs, busy ones first, ``scale`` GPUs a square (rounded up, busy before idle)."""
    states = ["busy"] * node.busy + ["unknown"] * node.unknown + ["idle"] * node.idle
    told = Text()
    for state in states[::scale]:
        name, style = square(node, state)
        told.append(glyphs[name], style=style)
    return told


def square(node: NodeSquare, state: str) -> tuple[str, str]:
    """Glyph name and style of one square."""
    colour = COLOURS.get(node.user, "white")
    if node.standing is Standing.AWAY:
        return "away", "bold red"
    if node.standing is Standing.CLOSING:
        return "closing", "red"
    if state == "unknown":
        return "unknown", "magenta"
    if node.standing is Standing.LENT:
        return ("lent" if state == "busy" else "lent-idle"), f"bold {colour}"
    return state, colour if state == "busy" else f"dim {colour}"


def legend(glyphs: dict[str, str]) -> Text:
    """What the squares mean."""
    told = Text(no_wrap=True, overflow="ellipsis", style="dim")
    told.append("  ".join(f"{glyphs[name]} {meaning}" for name, meaning in (*LEGEND, *LEGEND_REST)))
    return told


def decision_line(told: Told, width: int) -> Text:
    """One decision on one line."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{told.at:%H:%M} ", style="dim")
    line.append(f"{told.method:<8}", style="bold")
    line.append(f"{told.pool}: {told.sentence}")
    line.truncate(width, overflow="ellipsis")
    return line


def drawn(scene: Scene, width: int, height: int) -> Sequence[str]:
    """A scene as lines of text without colour, for tests and logs."""
    console = Console(width=width, height=height, record=True, file=None, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(scene)
    return capture.get().splitlines()
