"""The list of topics reaches an installed package, where no checkout lies beside it."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASK = "import rebalancer.wire.topics as t; print(t.__file__, len(t.topics()), t.folder())"


def test_a_wheel_brings_the_list_and_reads_its_own(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    asked = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    where, count, folder = asked.stdout.split()
    assert where.startswith(str(installed))
    assert folder == str(installed / "rebalancer" / "topics")
    assert count == "40"
