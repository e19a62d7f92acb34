"""Mutation testing of one module, on a seeded sample: does a changed condition fail something?

Run by hand, not by pytest. cosmic-ray changes files in place, so all of it happens in a copy of the tree.
Prints the survivors and the score; the exit code is 0 whatever the score is.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkerOutcome, WorkResult

ROOT = Path(__file__).parent.parent
COPIED = ("rebalancer", "tests", "topics", "pyproject.toml", "README.md")
SECONDS_PER_MUTANT = 60.0

CONFIG = """
[cosmic-ray]
module-path = "{module}"
timeout = {timeout}
excluded-modules = []
test-command = "{python} -m pytest -x -q -p no:cacheprovider -p no:xdist {tests}"
[cosmic-ray.distributor]
name = "local"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", help="file to mutate, from the project's root")
    parser.add_argument("tests", nargs="+", help="tests that should notice")
    parser.add_argument("--sample", type=int, default=40, help="how many mutants to try (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder)
        _copy_tree(copy)
        text = CONFIG.format(
            module=asked.module, tests=" ".join(asked.tests), python=sys.executable, timeout=SECONDS_PER_MUTANT
        )
        (copy / "mutation.toml").write_text(text)
        _cosmic_ray(copy, "init", "mutation.toml", "session.sqlite")
        _keep_sample(copy / "session.sqlite", asked.sample, asked.seed)
        _cosmic_ray(copy, "baseline", "mutation.toml")
        _cosmic_ray(copy, "exec", "mutation.toml", "session.sqlite")
        _report(copy / "session.sqlite")


def _copy_tree(copy: Path) -> None:
    for source in (ROOT / name for name in COPIED):
        if source.is_dir():
            shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, copy)


def _cosmic_ray(copy: Path, *arguments: str) -> None:
    program = Path(sys.executable).with_name("cosmic-ray")
    environment = os.environ | {"PYTHONPATH": str(copy)}  # before the editable install of the real tree
    subprocess.run([program, *arguments], cwd=copy, check=True, env=environment)


def _keep_sample(session: Path, size: int, seed: int) -> None:
    with use_db(session, WorkDB.Mode.open) as work:
        jobs = sorted(item.job_id for item in work.pending_work_items)
        order = sorted(work.pending_work_items, key=lambda item: (str(item.mutations), item.job_id))
        kept = {item.job_id for item in random.Random(seed).sample(order, min(size, len(order)))}
        for job in jobs:
            if job not in kept:
                work.set_result(job, WorkResult(WorkerOutcome.SKIPPED))


def _report(session: Path) -> None:
    with use_db(session, WorkDB.Mode.open) as work:
        ended = [(job, result) for job, result in work.results if result.worker_outcome != WorkerOutcome.SKIPPED]
        mutations = {item.job_id: item.mutations for item in work.work_items}
    survived = [job for job, result in ended if not result.is_killed]
    for job in survived:
        for one in mutations[job]:
            print(f"survived: {one.module_path}:{one.start_pos[0]} {one.operator_name}")  # noqa: T201  # its output
    print(f"{len(ended) - len(survived)} of {len(ended)} mutants killed")  # noqa: T201  # its output


if __name__ == "__main__":
    main()
