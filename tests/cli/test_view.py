"""The live view: readable at 80 x 24 and without colour, cheap, and plain lines where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rebalancer.cli.stage import FRAMES_PER_SECOND, Lines, Screen, stage
from rebalancer.cli.view import GLYPHS, PLAIN_GLYPHS, Scene, drawn
from tests.cli.pictures import SENTENCE, STEPS, picture, told


def scene(last: int = 600, *, count: int = 8) -> Scene:
    seen = Scene()
    for step in range(1, last + 1):
        spike = 60.0 if step == 540 else 10.0
        seen.see(picture(step, count=count, demand=spike, decisions=(told(step),) if step % 100 == 0 else ()))
    return seen


@pytest.mark.parametrize(
    ("width", "height"),
    [
        pytest.param(80, 24, id="the smallest terminal"),
        pytest.param(120, 40, id="a usual one"),
        pytest.param(250, 70, id="a large one"),
        pytest.param(60, 16, id="one that is hardly a terminal"),
    ],
)
@pytest.mark.parametrize("count", [8, 60, 400], ids=["a small fleet", "a fleet", "a large fleet"])
def test_it_fits(width: int, height: int, count: int) -> None:
    lines = drawn(scene(count=count), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any(line.startswith("infer-a100") for line in lines)
    assert any(line.startswith("demand") for line in lines)
    assert SENTENCE[:20] in "".join(lines)


def test_a_room_shows_each_node_by_owner_and_state_without_colour() -> None:
    lines = drawn(scene(), 80, 24)
    row = lines.index(next(line for line in lines if line.startswith("infer-a100"))) + 1
    assert lines[row].split() == ["▲▲▲▲▲▲▲▲", "▲▲▲▲△△△△", "◆◆◆◆◆◆◆◆", "××××××××", "■■?□□□□□", *["■■■■■■■■"] * 3]
    assert "60 held  16 waiting" in next(line for line in lines if line.startswith("train-a100"))


def test_every_state_has_a_glyph_of_its_own_in_both_alphabets() -> None:
    for glyphs in (GLYPHS, PLAIN_GLYPHS):
        assert len(set(glyphs.values())) == len(glyphs) == 7
    assert all(glyph.isascii() for glyph in PLAIN_GLYPHS.values())


def test_the_ribbon_keeps_a_spike_of_one_minute_and_leaves_the_future_empty() -> None:
    line = next(line for line in drawn(scene(600), 80, 24) if line.startswith("demand"))
    band = line.removeprefix("demand").lstrip()
    assert max(band) == "█"
    assert band.count("█") == 1
    assert len(band.rstrip()) == pytest.approx(71 * 600 / STEPS, abs=2)


def test_the_axis_has_the_hours() -> None:
    lines = drawn(scene(600), 80, 24)
    (axis,) = [line for line in lines if line.split() == ["21", "00", "03", "06", "09", "12", "15"]]
    assert axis.index("21") == pytest.approx(8 + 71 * 3 / 24, abs=1)


def test_the_last_decisions_come_newest_first() -> None:
    told_lines = [line for line in drawn(scene(600), 120, 24) if "lend" in line and "a-1" in line]
    assert [line[:5] for line in told_lines][:3] == ["04:00", "02:20", "00:40"]


def test_a_long_day_costs_no_more_memory() -> None:
    seen = Scene()
    for step in range(1, 5000):
        seen.see(picture(step, decisions=(told(step),)))
    assert len(seen.decisions) == 20
    assert len(seen.ribbon._samples) < 960


def test_without_a_terminal_there_are_plain_lines() -> None:
    out = io.StringIO()
    with stage(Console(file=out, width=80), headless=False) as shown:
        assert isinstance(shown, Lines)
        for step in range(1, 181):
            shown.show(picture(step, decisions=(told(step),) if step == 90 else ()))
    lines = out.getvalue().splitlines()
    assert [line[11:17] for line in lines] == ["18:01Z", "19:00Z", "19:30Z", "20:00Z", "21:00Z"]
    assert lines[2] == f"2026-03-03 19:30Z lend infer-a100: {SENTENCE} [aaaa0001]"
    assert "\x1b" not in out.getvalue()


def test_headless_means_lines_even_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    assert isinstance(stage(console, headless=True), Lines)


@pytest.mark.parametrize(
    ("width", "height", "kind"),
    [pytest.param(120, 40, Screen, id="roomy"), pytest.param(40, 10, Lines, id="too small for rooms")],
)
def test_a_terminal_gets_the_view_if_it_is_large_enough(width: int, height: int, kind: type) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height)
    assert isinstance(stage(console, headless=False), kind)


def test_it_draws_at_most_four_times_a_second_and_once_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 0.0
    monkeypatch.setattr("rebalancer.cli.stage.time.monotonic", lambda: moment)
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=True, width=80, height=24, no_color=True))
    with screen as shown:
        for step in range(1, 101):
            moment = step * 0.02  # 100 steps in two seconds
            shown.show(picture(step))
    assert out.getvalue().count("train-a100") <= 2 * FRAMES_PER_SECOND + 3
    assert "Tue 19:40" in out.getvalue()


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    with console.capture() as capture:
        console.print(scene(10))
    assert "\x1b[3" not in capture.get()
    assert "▲" in capture.get()
