"""An agent's own port: /health and /metrics, nothing else.

In:   GET requests on 127.0.0.1
Out:  /health as JSON (200 while it runs, else 503), /metrics as Prometheus text
Never: answers on another interface, or does the agent's work
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from afterbay.streams.metrics import Metrics

_HEALTHY = ("running", "draining")

Status = Callable[[], dict[str, str]]


class AgentPort:
    """Listener of one agent, in a thread of its own."""

    @staticmethod
    @contextmanager
    def serving(port: int | None, status: Status, metrics: Metrics) -> Iterator[int | None]:
        """Listen while the block runs; gives the port really taken, None if none was asked for."""
        if port is None:
            yield None
            return
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(status, metrics))
        # the default looks twice a second whether it should stop; only `shutdown` waits for it
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.5})
        thread.daemon = True
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(status: Status, metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is http.server's
            if self.path == "/health":
                now = status()
                code = 200 if now["state"] in _HEALTHY else 503
                self._answer(code, "application/json", json.dumps(now).encode())
            elif self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", metrics.text())
            else:
                self._answer(404, "text/plain", b"paths: /health /metrics\n")

        def log_message(self, *_arguments: object) -> None:
            """Access lines would only repeat who scrapes."""

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
