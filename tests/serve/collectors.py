"""Collectors that a gateway exports its traces to: a real one, one that hangs, and one that does not exist."""

import gzip
import http.server
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


class Collector:
    """Takes OTLP over HTTP, and keeps what it was sent."""

    def __init__(self, *, status: int = 200) -> None:
        self.spans: list[Any] = []
        self.metrics: list[Any] = []
        """What the last message says."""
        self.resources: list[dict[str, Any]] = []
        self.received = b""
        self.status = status
        self._condition = threading.Condition()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    data = gzip.decompress(data)
                assert self.headers["content-type"] == "application/x-protobuf"
                if collector.status == 200:
                    collector.take(self.path, data)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def take(self, path: str, data: bytes) -> None:
        with self._condition:
            self.received += data
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
                    self.resources.append(attributes(resource.resource.attributes))
                    self.spans += [span for scope in resource.scope_spans for span in scope.spans]
            else:
                assert path == "/v1/metrics"
                message = ExportMetricsServiceRequest.FromString(data)
                scopes = [scope for resource in message.resource_metrics for scope in resource.scope_metrics]
                self.metrics = [metric for scope in scopes for metric in scope.metrics]
            self._condition.notify_all()

    def until(self, true: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Wait until something was received."""
        with self._condition:
            assert self._condition.wait_for(true, timeout_s), (self.spans, self.metrics)


class Hanging:
    """Accepts connections, and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def dead_url() -> str:
    """An address at which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def attributes(found: "list[KeyValue] | Any") -> dict[str, Any]:
    """Attributes as Python has them."""
    return {item.key: _value(item.value) for item in found}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
