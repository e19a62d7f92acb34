"""A small server that plays the fleet's DCGM exporters and the query API of a Prometheus that scrapes them.

Rows are labelled as dcgm-exporter 4 labels them, and relabelled as a Prometheus does that keeps its target's
own pod. It understands of PromQL what an instant query for DCGM series needs: metric names and label matchers,
wherever they stand in the text. It must never be taken for a Prometheus beyond that.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.gpumeter import HELP, Load, Loads, Meter, load_of

HANGS_AT_MOST = 60.0  # seconds: longer than any caller waits
PORT = 9400  # dcgm-exporter's own, as a label; the server listens on a free one
_MATCHER = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")

Row = tuple[str, dict[str, str], float]
Holders = Callable[[str], Sequence[tuple[str, str] | None]]
"""Namespace and pod that hold each GPU of a node, None for a free one."""


class Mode(StrEnum):
    NORMAL = "normal"
    SILENT = "silent"  # no rows of the node
    FROZEN = "frozen"  # rows go on, nothing in them moves, energy included
    FAILING = "failing"  # HTTP 500
    HANGING = "hanging"  # connections are accepted and never answered


class Exporters:
    """Serves from construction until `close()`, in threads of this process.

    Args:
        nodes: number of GPUs and model by node name; `add` and `remove` change it.
        loads: percent by node, or a callable; `loads` can be replaced at any time.
        holders: pods that hold each GPU of a node; without it no row names a pod.
    """

    def __init__(
        self,
        nodes: Mapping[str, tuple[int, str]] | None = None,
        loads: Loads | None = None,
        holders: Holders | None = None,
    ) -> None:
        self.loads: Loads = {} if loads is None else loads
        self._holders = holders
        self._lock, self.closing = threading.RLock(), threading.Event()
        self._meters: dict[str, Meter] = {}
        self._modes: dict[str, Mode] = {}
        self._all = Mode.NORMAL
        self._asked: list[str] = []
        for name, (gpus, model) in (nodes or {}).items():
            self.add(name, gpus, model)
        self._server = ThreadingHTTPServer(
            ("", 0), type("Handler", (_Handler,), {"exporters": self})
        )  # pages of nodes are on addresses 127.1.x.y
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="exporters", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- the fleet --------------------------------------------------------------------------------------------------

    def add(self, node: str, gpus: int = 8, model: str = "A100") -> None:
        with self._lock:
            self._meters[node] = Meter(node, gpus, model)

    def remove(self, node: str) -> None:
        with self._lock:
            del self._meters[node]

    def set_mode(self, mode: Mode | str, *nodes: str) -> None:
        """From now on these nodes, or all of them and the query API when none is named."""
        with self._lock:
            if not nodes:
                self._all = Mode(mode)
                self._modes.clear()
            self._modes.update((node, Mode(mode)) for node in nodes)

    @property
    def queries(self) -> list[str]:
        """Every query that was asked, in order."""
        return list(self._asked)

    def address(self, node: str) -> str:
        """A loopback address of the node's own: its page is at http://<address>:<port>/metrics (Linux only)."""
        number = list(self._meters).index(node) + 1
        return f"127.1.{number // 250}.{number % 250 + 1}"

    # --- what is served -----------------------------------------------------------------------------------------------

    def mode_of(self, node: str = "") -> Mode:
        return self._modes.get(node, self._all)

    def page(self, node: str) -> str | None:
        """The page of a node's exporter; None when it says nothing."""
        rows = list(self._rows_of(node))
        if not rows:
            return None
        lines = []
        for name, (kind, about) in HELP.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(labels)}}} {value:.12g}" for found, labels, value in rows if found == name]
        return "\n".join(lines) + "\n"

    def query(self, text: str) -> dict[str, Any]:
        """The answer of the query API to an instant query."""
        self._asked.append(text)
        matchers = _MATCHER.findall(text)
        now = time.time()
        found: list[dict[str, Any]] = [
            {"metric": {"__name__": name, **labels}, "value": [now, f"{now if 'timestamp(' in text else value:.12g}"]}
            for node in list(self._meters)
            for name, labels, value in (_relabelled(row) for row in self._rows_of(node))
            if _wanted(name, text, matchers) and _matches({"__name__": name, **labels}, matchers)
        ]
        return {"status": "success", "data": {"resultType": "vector", "result": found}}

    def node_at(self, address: str) -> str | None:
        return next((node for node in list(self._meters) if self.address(node) == address), None)

    def _rows_of(self, node: str) -> Iterator[Row]:
        with self._lock:
            meter, mode = self._meters.get(node), self.mode_of(node)
            load = load_of(self.loads, node)
            if meter is None or mode is Mode.SILENT or load is None:
                return
            if mode is not Mode.FROZEN:
                meter.turn(load)
            rows = [row for number in range(len(meter.cards)) for row in self._card_rows(meter, number)]
        yield from rows

    def _card_rows(self, meter: Meter, number: int) -> Iterator[Row]:
        card = meter.cards[number]
        labels = {
            "gpu": str(number), "UUID": card.uuid, "pci_bus_id": f"00000000:{number + 16:02X}:00.0",
            "device": f"nvidia{number}", "modelName": meter.product, "Hostname": meter.node,
        }  # fmt: skip
        holder = self._holders(meter.node)[number] if self._holders else None
        if holder:
            labels |= {"container": "main", "namespace": holder[0], "pod": holder[1]}
        for name, value in card.readings().items():
            yield name, labels, value


def _relabelled(row: Row) -> Row:
    """As scraped with `honorLabels: false`: the exporter's own pod takes the plain names."""
    name, labels, value = row
    moved = {f"exported_{key}" if key in {"container", "namespace", "pod"} else key: at for key, at in labels.items()}
    host = labels["Hostname"]
    target = {
        "job": "nvidia-dcgm-exporter", "instance": f"{host}:{PORT}", "namespace": "gpu-operator", "node": host,
        "pod": f"nvidia-dcgm-exporter-{host}", "container": "nvidia-dcgm-exporter", "endpoint": "gpu-metrics",
    }  # fmt: skip
    return name, {**moved, **target}, value


def _wanted(name: str, text: str, matchers: list[tuple[str, str, str]]) -> bool:
    return name in _WORD.findall(text) or any(key == "__name__" for key, _, _ in matchers)


def _matches(labels: Mapping[str, str], matchers: list[tuple[str, str, str]]) -> bool:
    return all(_holds(labels.get(key, ""), sign, value.replace("\\\\", "\\")) for key, sign, value in matchers)


def _holds(found: str, sign: str, value: str) -> bool:
    same = re.fullmatch(value, found) is not None if "~" in sign else found == value
    return same is not sign.startswith("!")


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{key}="{value}"' for key, value in labels.items())


class _Handler(BaseHTTPRequestHandler):
    exporters: Exporters  # by the subclass that each server makes

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        self._serve(at.path, parse_qs(at.query))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        self._serve(urlsplit(self.path).path, parse_qs(body))

    def _serve(self, path: str, query: dict[str, list[str]]) -> None:
        here = str(self.connection.getsockname()[0])
        node = self.exporters.node_at(here) or unquote(path.removeprefix("/metrics").strip("/"))
        mode = self.exporters.mode_of("" if path.startswith("/api") else node)
        if not self.client_address[0].startswith("127."):
            self._answer(403, "text/plain", "for this machine only")
        elif mode is Mode.HANGING:
            self.exporters.closing.wait(HANGS_AT_MOST)
        elif mode is Mode.FAILING:
            self._answer(500, "text/plain", "the exporter failed")
        elif path == "/api/v1/query" and "query" in query:
            self._answer(200, "application/json", json.dumps(self.exporters.query(query["query"][0])))
        elif path.startswith("/metrics") and (page := self.exporters.page(node)) is not None:
            self._answer(200, "text/plain; version=0.0.4", page)
        else:
            self._answer(404, "text/plain", "nothing here")

    def _answer(self, code: int, kind: str, text: str) -> None:
        blob = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(blob)))
        self.end_headers()
        self.wfile.write(blob)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the queries are kept in `queries`."""


__all__ = ["Exporters", "Load", "Mode"]
