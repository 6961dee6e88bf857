"""A schema registry that speaks the API of Confluent over HTTP: loads of Avro ask it for schemas."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote


class RegistryServer:
    """Serves until `close`; a context manager.

    Args:
        login: `user:password` that it wants, or empty.
        certificate: and its key, for HTTPS.

    Attributes:
        asked: paths of requests, in their order.
        is_down: it answers every request with 503.
    """

    def __init__(self, login: str = "", certificate: tuple[Path, Path] | None = None) -> None:
        self._login = login
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.is_down = False
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                code, told = registry._answer(self.path, self.headers.get("Authorization", ""))
                data = json.dumps(told).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        host = "127.0.0.1" if certificate is None else "localhost"
        self.url = f"{scheme}://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> RegistryServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def put(
        self,
        subject: str,
        schema: Any,
        *,
        kind: str = "",
        references: tuple[tuple[str, str, int], ...] = (),
        number: int | None = None,
    ) -> int:
        """Stores the next version of a subject; returns its id.

        Args:
            references: name, subject and version of schemas that it uses.
        """
        number = len(self._schemas) + 1 if number is None else number
        told: dict[str, Any] = {"schema": json.dumps(schema)}
        if kind:
            told["schemaType"] = kind
        if references:
            told["references"] = [
                {"name": name, "subject": of, "version": version} for name, of, version in references
            ]
        self._schemas[number] = told
        self._subjects.setdefault(subject, []).append(number)
        return number

    def _answer(self, path: str, given: str) -> tuple[int, dict[str, Any]]:
        wanted = f"Basic {base64.b64encode(self._login.encode()).decode()}"
        if self._login and given != wanted:
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if self.is_down:
            return 503, {"error_code": 50301, "message": "Unavailable"}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) in self._schemas:
            return 200, self._schemas[int(parts[2])]
        if parts[0] == "subjects" and parts[2] == "versions":
            ids = self._subjects.get(parts[1], [])
            if int(parts[3]) <= len(ids):
                number = ids[int(parts[3]) - 1]
                return 200, {
                    "subject": parts[1],
                    "id": number,
                    "version": int(parts[3]),
                    **self._schemas[number],
                }
        return 404, {"error_code": 40403, "message": "Schema not found"}
