"""The connection of a client to the server of a store elsewhere.

1. The client logs in and opens a session, which has a term. A thread renews it; a session whose term is over
   ends at the server: its loads and transactions are rolled back, its versions are released.
2. A request has an id. Where its reply is lost, the client asks for it by the id: the server keeps replies of
   calls that change something for as long as the session lives, and the ids of those whose replies it has
   dropped for newer ones. A request that the server never saw is sent again. So no call runs twice, unless it
   only reads.
3. Where the session ended meanwhile, or the server, a read runs again in a new session. The outcome of a
   change is not known then: `LostReplyError`. A load finds it by its label (remote.outcomes).

A forked child has a session of its own, and no object of its parent.
"""

from __future__ import annotations

import itertools
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from seqstore.store.errors import AccessDeniedError, ClosedError, CommitUnknownError, UnavailableError
from seqstore.store.remote import requests
from seqstore.store.remote.address import Address
from seqstore.store.remote.failures import error_of
from seqstore.store.remote.link import BROKEN, Link
from seqstore.store.remote.surface import CALLS
from seqstore.store.remote.wire import PROTOCOL, unpacked
from seqstore.store.runtime.forks import new_lock

RETRY_SECONDS: Final = 30.0
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_FLIGHT: Final = re.compile(
    r"^Flight returned \w+ error, with message: (failed to connect to all addresses; last error: \w+: )?"
)
_numbers: Final = itertools.count(1)


class LostReplyError(CommitUnknownError):
    """The reply of a change is lost. The change may have happened."""


class NoAnswerError(LostReplyError):
    """The server does not answer for now. It may still run the change, and tell its reply later."""


def _new_id() -> str:
    """Returns an id that no other request has; its number is greater than those of earlier ids."""
    return f"{next(_numbers)}-{uuid.uuid4().hex}"


@dataclass
class Request:
    """One call of a client.

    Attributes:
        kind, name: of the call, see `remote.surface`.
        on: the object; None for the store.
        link: the session that has the object, None for objects that every session has.
        rows: that the call takes.
        doubt: the session in which it may have run already, after a lost reply.
    """

    kind: str
    name: str
    on: Any = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    link: Link | None = None
    rows: pa.Table | None = None
    id: str = field(default_factory=_new_id)
    doubt: Link | None = None

    @property
    def is_read(self) -> bool:
        """Whether it may run twice."""
        return CALLS[self.kind][self.name].is_read

    @property
    def message(self) -> dict[str, Any]:
        """The request as it is sent, without its session."""
        return {
            "protocol": PROTOCOL,
            "request": self.id,
            "call": f"{self.kind}.{self.name}",
            "on": self.on,
            "arguments": dict(self.arguments),
        }


class Connection:
    """Safe to share between threads.

    Args:
        retry_seconds: how long a lost server is tried again before a call fails.

    Raises:
        UnavailableError: no server answers. One that has given a token, to another process of a job, is tried
            again from the first call on.
    """

    def __init__(self, address: Address, retry_seconds: float = RETRY_SECONDS) -> None:
        self.address = address
        self.retry_seconds = retry_seconds
        self._lock = new_lock()
        self._link: Link | None = None
        self._is_closed = False
        if address.token:
            return
        try:
            self.link()
        except BROKEN as error:
            raise self._unreachable(error) from error

    def task_address(self) -> Address:
        """Returns the address for tasks of a job: with a token of this login in the place of the password."""
        return replace(self.address, password="", token=self.link().token)

    def link(self) -> Link:
        """Returns the session of this process, a new one where there is none or it ended.

        Raises:
            AccessDeniedError: no such user, or another password.
            ClosedError: the store handle was closed.
            OSError: the server cannot be reached; `BROKEN` has the other classes.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"{self.address.url}: this store handle was closed; connect again")
            if self._link is None or self._link.process != os.getpid() or self._link.is_lost:
                try:
                    self._link = Link(self.address)
                except UnavailableError as error:  # a server that stops: as one that cannot be reached
                    raise ConnectionError(error.message) from error
            return self._link

    def run(self, request: Request) -> Any:
        """Runs a call and returns its value; see the module.

        Run again after a `NoAnswerError`, the same request goes on with its first attempt.

        Raises:
            StoreError: as the call raises it at the server.
            UnavailableError: the server cannot be reached.
            CommitUnknownError: the reply is lost, and with it whether the call had its effect.
        """
        ends = time.monotonic() + self.retry_seconds
        for pause in pauses():
            link = None
            try:
                link = self._link_of(request)
                reply = self._reply(request, link)
            except flight.FlightUnauthenticatedError as error:
                if link is None or time.monotonic() > ends:
                    raise self._given_up(request, error) from error
                self._log_in_again(request, link)
            except BROKEN as error:
                request.doubt = request.doubt or link
                if time.monotonic() > ends:
                    raise self._given_up(request, error) from error
            else:  # the error of a reply may be one of Arrow's, too
                if reply.get("state") == requests.FORGOTTEN:
                    raise self._lost(request, "the server has dropped the reply for newer ones")
                if reply.get("state") == requests.RUNNING:
                    ends = time.monotonic() + self.retry_seconds
                elif "lost" not in reply:
                    return _value(reply)
                else:
                    link.is_lost = True
                continue
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _log_in_again(self, request: Request, link: Link) -> None:
        """Gets a token of a server that began anew, and knows the earlier one no longer."""
        try:
            with suppress(*BROKEN):
                link.log_in()
        except AccessDeniedError as error:
            if request.doubt is None or request.is_read:
                raise
            raise self._lost(request, f"the login is refused now ({error.message})") from error

    def _link_of(self, request: Request) -> Link:
        """Returns the session for a request."""
        doubt = request.doubt
        if request.link is not None:
            link = request.link
            if link.process != os.getpid():
                raise ClosedError(f"{request.kind} was begun in another process; begin another here")
            is_lost = link.is_lost
        else:
            link = self.link()
            is_lost = doubt is not None and doubt is not link and not request.is_read
        if not is_lost:
            return link
        if doubt is not None and not request.is_read:
            raise self._lost(request, "the session ended with it")
        raise ClosedError(
            f"{self.address.url}: the session that has this {request.kind} ended, because the server was "
            "stopped or not heard of for the term of its lease; begin another",
            kind="session_ended",
        )

    def _reply(self, request: Request, link: Link) -> dict[str, Any]:
        if request.doubt is link and not request.is_read:
            reply = link.ask(request.id)
            if reply.get("state") != requests.UNKNOWN:
                return reply
        return link.call(request.message, request.rows)

    def _lost(self, request: Request, why: str) -> LostReplyError:
        return LostReplyError(
            f"{request.kind}.{request.name}: the connection to {self.address.url} broke, and {why}; whether "
            "the call had its effect is not known",
            kind="lost_reply",
        )

    def _given_up(self, request: Request, error: Exception) -> Exception:
        if request.doubt is None or request.is_read:
            return self._unreachable(error)
        return NoAnswerError(
            f"{request.kind}.{request.name}: {self.address.url} does not answer any more; whether the call "
            f"had its effect is not known: {_first_line(error)}",
            kind="lost_reply",
        )

    def _unreachable(self, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"{self.address.url}: no server answers: {_first_line(error)}; check the address and that "
            "flight_port is set there",
            kind="unreachable",
        )

    def reader(self, request: Request) -> pa.RecordBatchReader:
        """Opens the rows of a call; a connection that breaks before the first rows is made anew.

        Raises:
            StoreError: as the call raises it at the server, here or while the rows are read.
            UnavailableError: the server cannot be reached, or is lost while the rows are read.
        """
        ends = time.monotonic() + self.retry_seconds
        for pause in pauses():
            link = None
            try:
                link = self._link_of(request)
                stream = link.rows(request.message)
                return pa.RecordBatchReader.from_batches(stream.schema, self._batches(stream))
            except flight.FlightUnauthenticatedError as error:
                if link is None or time.monotonic() > ends:
                    raise self._unreachable(error) from error
                with suppress(*BROKEN):
                    link.log_in()
            except BROKEN as error:
                found = _sent_error(error)
                if found is None and time.monotonic() > ends:
                    raise self._unreachable(error) from error
                if found is not None and found.get("lost") and link is not None:
                    link.is_lost = True
                elif found is not None:
                    raise error_of(found) from None
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _batches(self, stream: Any) -> Iterator[pa.RecordBatch]:
        is_read = False
        try:
            while True:
                try:
                    chunk = stream.read_chunk()
                except StopIteration:
                    is_read = True
                    return
                if chunk.data is not None:
                    yield chunk.data
        except BROKEN as error:
            is_read = True
            found = _sent_error(error)
            if found is None:
                raise UnavailableError(
                    f"{self.address.url}: the connection broke while rows were read: {_first_line(error)}; "
                    "read them again",
                    kind="connection_lost",
                ) from error
            raise error_of(found) from None
        finally:
            if not is_read:
                stream.cancel()

    def close(self) -> None:
        """Ends the session."""
        with self._lock:
            self._is_closed = True
            link, self._link = self._link, None
        if link is not None and link.process == os.getpid():
            link.close()


def pauses() -> Iterator[float]:
    """Yields how long to wait before each further try, in seconds."""
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _value(reply: Mapping[str, Any]) -> Any:
    if "error" in reply:
        raise error_of(reply["error"])
    return reply["value"]


def _sent_error(error: Exception) -> Mapping[str, Any] | None:
    """Returns the message of an error that the server raised for the call, None for another one."""
    extra = getattr(error, "extra_info", b"")
    if not extra or not extra.startswith(requests.PREFIX):
        return None
    found: Mapping[str, Any] = unpacked(extra[len(requests.PREFIX) :])
    return found


def _first_line(error: Exception) -> str:
    """Returns the message of an error without what Flight and gRPC put around it."""
    text = str(error).strip().partition("\n")[0].partition(". gRPC client debug context")[0]
    return _FLIGHT.sub("", text)
