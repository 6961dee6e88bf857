"""One session of a client at a server: its login, its object numbers, its term."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from seqstore.store.errors import AccessDeniedError
from seqstore.store.remote import requests
from seqstore.store.remote.address import Address
from seqstore.store.remote.failures import error_of
from seqstore.store.remote.wire import PROTOCOL, packed, unpacked

BROKEN: Final = (flight.FlightError, pa.ArrowException, OSError)
"""What Arrow raises where a connection breaks; replies of the server bring their errors with them."""

_RENEWALS: Final = 3  # within a term
# Without a word from the server a connection is closed, and what waits on it tried again: 20 seconds after a
# request was sent into nothing, and within six minutes while a reply is awaited. gRPC's servers take more
# frequent questions than one in five minutes for an attack, and pyarrow cannot tell them otherwise.
_KEEPALIVE: Final = [
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
]
_SECONDS: Final = 10.0  # for what the server answers at once
_LOGIN_PAUSES: Final = (0.1, 0.5)


class Link:
    """A session; the thread that renews it ends with it.

    Attributes:
        process: that opened it.
        is_lost: the server does not know it any more.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self.process = os.getpid()
        self.is_lost = False
        self._released: deque[int] = deque()
        self._end = threading.Event()
        options = {} if address.certificates is None else {"tls_root_certs": address.certificates}
        self._client = flight.connect(address.location, generic_options=_KEEPALIVE, **options)
        self._token = (b"authorization", f"Bearer {address.token}".encode())
        if not address.token:
            self.log_in()
        try:
            opened = self.act(requests.OPEN, {"protocol": PROTOCOL}, _SECONDS)
        except flight.FlightUnauthenticatedError as error:
            raise AccessDeniedError(_plain(error), kind="bad_password") from error
        if "error" in opened:
            raise error_of(opened["error"])
        self.session: str = opened["value"]["session"]
        seconds = float(opened["value"]["lease_seconds"]) / _RENEWALS
        threading.Thread(
            target=_renew, args=(weakref.ref(self), self._end, seconds), name="seqstore renew", daemon=True
        ).start()

    def log_in(self) -> None:
        """Gets a token for the calls that follow.

        Raises:
            AccessDeniedError: no such user, or another password.
        """
        if self._address.token:
            raise AccessDeniedError(
                f"{self._address.url}: the login of this job has ended, with the server that gave it or with "
                "the user's password; run the job again",
                kind="bad_password",
            )
        for pause in (*_LOGIN_PAUSES, None):
            try:
                self._token = self._given_token()
                return
            except flight.FlightInternalError:
                self._require_server()
                if pause is None:
                    raise
                time.sleep(pause)

    def _given_token(self) -> tuple[bytes, bytes]:
        limit = flight.FlightCallOptions(timeout=_SECONDS)
        try:
            found: tuple[bytes, bytes] = self._client.authenticate_basic_token(
                self._address.user, self._address.password, options=limit
            )
        except flight.FlightUnauthenticatedError as error:
            raise AccessDeniedError(_plain(error), kind="bad_password") from error
        return found

    def _require_server(self) -> None:
        """Raises what gRPC says of a server that cannot be reached: a login that breaks does not tell why."""
        sent = flight.Action(requests.OPEN, packed({"protocol": PROTOCOL}))
        with suppress(flight.FlightUnauthenticatedError):  # it answers, and wants the login first
            list(self._client.do_action(sent, flight.FlightCallOptions(timeout=_SECONDS / 2)))

    @property
    def token(self) -> str:
        """The token of the login."""
        return bytes(self._token[1]).decode().partition(" ")[2]

    def act(self, action: str, body: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Sends an action and returns the reply."""
        sent = flight.Action(action, packed(body))
        [result] = self._client.do_action(sent, self._options(seconds))
        return _reply(result.body)

    def call(self, request: dict[str, Any], rows: pa.Table | None) -> dict[str, Any]:
        """Sends a request, with its rows if it has any, and returns the reply.

        Raises:
            OSError: the connection broke; `BROKEN` has the other classes.
        """
        request = {**request, "session": self.session, "released": self.released()}
        if rows is None:
            return self.act(requests.CALL, request)
        descriptor = flight.FlightDescriptor.for_command(
            requests.PREFIX + packed({**request, "rows": rows.num_rows, "bytes": rows.nbytes})
        )
        writer, answers = self._client.do_put(descriptor, rows.schema, self._options(None))
        with writer:
            with suppress(*BROKEN):  # a refusal arrives before the last row was sent
                writer.write_table(rows)
                writer.done_writing()
            answer = answers.read()
        if answer is None:
            raise ConnectionError("the server ended the call without a reply")
        return _reply(answer)

    def rows(self, request: dict[str, Any]) -> Any:
        """Opens the rows of a request: a `FlightStreamReader`."""
        data = packed({**request, "session": self.session, "released": self.released()})
        return self._client.do_get(flight.Ticket(requests.PREFIX + data), self._options(None))

    def ask(self, request: str) -> dict[str, Any]:
        """Returns the reply of an earlier request, or what is known of it."""
        return self.act(requests.REPLY, {"session": self.session, "request": request}, 3 * _SECONDS)

    def renew(self) -> None:
        """Keeps the session for another term."""
        body = {"session": self.session, "released": self.released()}
        try:
            reply = self.act(requests.RENEW, body, _SECONDS)
        except flight.FlightUnauthenticatedError:
            self.log_in()
            reply = self.act(requests.RENEW, body, _SECONDS)
        if "lost" in reply:
            self.is_lost = True

    def release(self, number: int) -> None:
        """Frees an object with the next message; any thread may call it, the garbage collector too."""
        self._released.append(number)

    def released(self) -> list[int]:
        """Takes the objects that are to be freed."""
        found: list[int] = []
        with suppress(IndexError):
            while True:
                found.append(self._released.popleft())
        return found

    def close(self) -> None:
        """Ends the session; a server that cannot be reached ends it after its term."""
        self._end.set()
        if self.process == os.getpid() and not self.is_lost:
            with suppress(*BROKEN):
                self.act(requests.CLOSE, {"session": self.session}, _SECONDS)
        self.is_lost = True
        with suppress(*BROKEN):
            self._client.close()

    def _options(self, seconds: float | None) -> Any:
        return flight.FlightCallOptions(timeout=seconds, headers=[self._token])


def _renew(link: weakref.ref[Link], end: threading.Event, seconds: float) -> None:
    """Renews a session until it ends, or until no handle refers to it."""
    while not end.wait(seconds):
        found = link()
        if found is None or found.is_lost:
            return
        with suppress(*BROKEN, AccessDeniedError):
            found.renew()
        del found


def _reply(body: Any) -> dict[str, Any]:
    reply: dict[str, Any] = unpacked(bytes(memoryview(body)))
    return reply


def _plain(error: Exception) -> str:
    """Returns the message of an error without what gRPC adds."""
    text = str(error).partition(". gRPC client debug context")[0].partition(". Detail:")[0]
    return text.removeprefix("Flight returned unauthenticated error, with message: ")
