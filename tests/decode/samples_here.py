"""The small samples beside these tests: shapes seen in public, values invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent / "samples"


def raw(name: str) -> bytes:
    return (ROOT / name).read_bytes()


def parsed(name: str) -> Any:
    return json.loads(raw(name))


def names(folder: str) -> list[str]:
    return sorted(f"{folder}/{path.name}" for path in (ROOT / folder).iterdir())
