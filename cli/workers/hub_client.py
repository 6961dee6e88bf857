"""The worker's side of its channel to the hub. A worker whose hub has ended ends at once, as by a crash."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import msgpack

from seqstore.cli.workers.frames import FrameReader, packed
from seqstore.store import errors

_log: Final = logging.getLogger("seqstore.workers")
_LOST: Final = 1  # exit code


class HubClient:
    """The hub, as the threads of a worker know it.

    Args:
        channel: of this worker; it blocks.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._reader = FrameReader(channel)
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[Any]] = {}
        self._answers: dict[str, Callable[..., Any]] = {}
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)

    def start(self) -> None:
        """Begins to answer the hub."""
        self._thread.start()

    def answer(self, operation: str, work: Callable[..., Any]) -> None:
        """Sets what answers an operation of the hub; it is quick, and calls nothing of this class."""
        self._answers[operation] = work

    def ask(self, operation: str, *arguments: Any) -> tuple[int, Future[Any]]:
        """Asks the hub; returns the id of the request and the reply to come.

        The result raises the StoreError of a refusal.
        """
        number, reply = next(self._numbers), Future[Any]()
        self._asked[number] = reply
        self._send([number, operation, *arguments])
        return number, reply

    def call(self, operation: str, *arguments: Any) -> Any:
        """Asks the hub and waits for the reply; never call it on the thread of an event loop."""
        return self.ask(operation, *arguments)[1].result()

    def say(self, operation: str, *arguments: Any) -> None:
        """Tells the hub something that it does not reply to."""
        self._send([0, operation, *arguments])

    def ask_others(self, operation: str, *arguments: Any) -> list[tuple[int, Any]]:
        """Asks every other worker; returns place and answer of each."""
        return [(place, answer) for place, answer in self.call("all", operation, *arguments)]

    def _send(self, frame: list[Any]) -> None:
        data = packed(frame)
        with self._sending:
            try:
                self._channel.sendall(data)
            except OSError:
                os._exit(_LOST)

    def _run(self) -> None:
        while True:
            try:
                frames = self._reader.read()
                if frames is None:
                    os._exit(_LOST)  # nothing acknowledged is lost, and clients see a closed connection
                for number, kind, *values in frames:
                    self._handle(number, kind, values)
            except (msgpack.UnpackException, ValueError):
                _log.exception("the hub sent what is no frame")
                os._exit(_LOST)

    def _handle(self, number: int, kind: str, values: list[Any]) -> None:
        if kind == "do":
            self._send([number, "did", self._done(values[0], values[1:])])
            return
        reply = self._asked.pop(number, None)
        if reply is None or not reply.set_running_or_notify_cancel():
            if kind == "reply" and values[0] is True:  # a seat whose request was given up
                self._send([0, "leave", number])
            return
        if kind == "reply":
            reply.set_result(values[0])
            return
        name, message, error_kind = values
        reply.set_exception(getattr(errors, name, errors.UnavailableError)(message, kind=error_kind))

    def _done(self, operation: str, arguments: list[Any]) -> Any:
        work = self._answers.get(operation)
        try:
            return work(*arguments) if work is not None else None
        except Exception:
            _log.exception("the worker could not answer %r", operation)
            return None
