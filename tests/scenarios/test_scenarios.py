"""Every table of ``engine`` and ``worlds`` is one test, named by its sentence."""

from __future__ import annotations

import pytest

from tests.scenarios.runner import Story, play, stories


@pytest.mark.parametrize("story", [pytest.param(story, id=story.name) for story in stories()])
def test_scenario(story: Story) -> None:
    """What the table expects happened, and what it forbids did not."""
    complaints = play(story)
    assert not complaints, f"{story.table['source']} ({story.level}/{story.file}):\n" + "\n".join(complaints)
