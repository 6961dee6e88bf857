"""The messages of a store elsewhere within Arrow Flight.

    DoAction `seqstore.open`    {protocol}                          begins a session of the client
    DoAction `seqstore.renew`   {session, released}                 keeps it, and frees objects
    DoAction `seqstore.close`   {session}                           ends it
    DoAction `seqstore.call`    a request                           runs a call; the reply is a value
    DoAction `seqstore.reply`   {session, request}                  the reply of an earlier request, if any
    DoGet                       `PREFIX` and a request              rows of a call
    DoPut                       `PREFIX` and a request, rows        a call that takes rows

A request has `protocol`, `session`, `request` (its own id), `call` (`Class.name`), `on` (the object) and
`arguments`. A reply has one of `value`, `error` (remote.failures), `lost` (the session has ended) and
`state`: `unknown` (the request never arrived), `running`, or `forgotten` (its reply is kept no longer).

The id of a request begins with a number: those of one client rise.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = b"seqstore:"
OPEN, RENEW, CLOSE, CALL, REPLY = (f"seqstore.{name}" for name in ("open", "renew", "close", "call", "reply"))
ACTIONS: Final = {
    OPEN: "Begins a session of a client of seqstore.",
    RENEW: "Keeps the session, and frees objects that the client does not need.",
    CLOSE: "Ends the session.",
    CALL: "Runs a call of a client.",
    REPLY: "Returns the reply of a request whose first one was lost.",
}
UNKNOWN: Final = "unknown"
RUNNING: Final = "running"
FORGOTTEN: Final = "forgotten"
ID_LENGTH_MAX: Final = 64
