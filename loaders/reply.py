"""The reply of a stream load: Doris's fields in Doris's order (LS1-LS6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from seqstore.store.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    LabelExistsError,
    LoadRejectedError,
    NotFoundError,
    StoreError,
    UnavailableError,
)

SUCCESS: Final = "Success"
PUBLISH_TIMEOUT: Final = "Publish Timeout"
LABEL_EXISTS: Final = "Label Already Exists"
FAIL: Final = "Fail"

_MESSAGE_MAX: Final = 2_000
_EXISTING_STATUS: Final = {  # LS5
    "PREPARE": "RUNNING",
    "PRECOMMITTED": "PRECOMMITTED",
    "COMMITTED": "FINISHED",
    "VISIBLE": "FINISHED",
}

_TIMES: Final = (
    "LoadTimeMs",
    "BeginTxnTimeMs",
    "StreamLoadPutTimeMs",
    "ReadDataTimeMs",
    "WriteDataTimeMs",
    "CommitAndPublishTimeMs",
)
_NOT_GROUPED_TIMES: Final = ("BeginTxnTimeMs", "CommitAndPublishTimeMs")  # G6


class StreamLoadReply(dict[str, Any]):
    """The fields of a reply by name, in order."""

    @property
    def is_success(self) -> bool:
        """The rows are stored: now (Success) or as soon as they are published (Publish Timeout, LS3)."""
        return self["Status"] in (SUCCESS, PUBLISH_TIMEOUT)

    def to_json(self) -> str:
        """Formats the reply as Doris does: four blanks deep, one field a line."""
        return json.dumps(self, ensure_ascii=False, indent=4)


@dataclass
class Progress:
    """The counts of a load so far; the reply has them, whatever the outcome (LS9).

    Attributes:
        is_grouped: the load was published with others (G6).
        loaded, filtered, unselected: rows.
        body_bytes: read from the body, compressed or not.
        milliseconds: by the name of the reply's field.
        error_url: path of the error log.
        warning: a suspicion about rows that were loaded.
        created: the statement of the table that the load has made.
        schema_changes: of the table, made with the rows, in words.
        skipped: why its rows were left out, though it counts as a success; empty when they were not.
    """

    label: str = ""
    txn_id: int = -1
    comment: str = ""
    two_phase_commit: bool = False
    is_grouped: bool = False
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0
    body_bytes: int = 0
    milliseconds: dict[str, int] = field(default_factory=dict)
    error_url: str = ""
    warning: str = ""
    skipped: str = ""
    schema_changes: tuple[str, ...] = ()
    created: str = ""

    @property
    def total_rows(self) -> int:
        """All rows of the body so far (LS7)."""
        return self.loaded + self.filtered + self.unselected


def make_reply(progress: Progress, status: str, message: str, existing: str = "") -> StreamLoadReply:
    """Returns the reply for an outcome.

    Args:
        existing: status of the load that has the label; only for `LABEL_EXISTS`.
    """
    reply = StreamLoadReply()
    reply["TxnId"] = progress.txn_id
    reply["Label"] = progress.label
    reply["Comment"] = progress.comment
    if progress.is_grouped:
        reply["GroupCommit"] = True
    else:
        reply["TwoPhaseCommit"] = "true" if progress.two_phase_commit else "false"
    reply["Status"] = status
    if status == LABEL_EXISTS:
        reply["ExistingJobStatus"] = existing
    reply["Message"] = message
    reply["NumberTotalRows"] = progress.total_rows
    reply["NumberLoadedRows"] = progress.loaded
    reply["NumberFilteredRows"] = progress.filtered
    reply["NumberUnselectedRows"] = progress.unselected
    reply["LoadBytes"] = progress.body_bytes
    for name in _TIMES:
        if progress.is_grouped and name in _NOT_GROUPED_TIMES:
            continue
        reply[name] = progress.milliseconds.get(name, 0)
    if progress.error_url:
        reply["ErrorURL"] = progress.error_url
    return reply


def reply_for_error(progress: Progress, error: Exception) -> StreamLoadReply:
    """Returns the reply for the error that ended a load."""
    if isinstance(error, LabelExistsError):
        seen = Progress(progress.label, comment=progress.comment, two_phase_commit=progress.two_phase_commit)
        message = (
            f"[LABEL_ALREADY_EXISTS]Label [{progress.label}] has already been used, relate to txn "
            f"[{error.txn_id}], status [{error.status}]."
        )
        return make_reply(seen, LABEL_EXISTS, message, _EXISTING_STATUS.get(error.status, "RUNNING"))
    text = error.message if isinstance(error, StoreError) else str(error)
    if len(text) > _MESSAGE_MAX:  # it may quote what the client sent
        text = f"{text[:_MESSAGE_MAX]}..."
    return make_reply(progress, FAIL, f"[{_code(error)}]{text}")


def refusal(headers: Mapping[str, str], error: Exception) -> StreamLoadReply:
    """Returns the reply to a request that no load was begun for.

    Args:
        headers: by lower-case name.
    """
    progress = Progress(headers.get("label", "").strip(), comment=headers.get("comment", "").strip())
    return reply_for_error(progress, error)


def _code(error: Exception) -> str:
    """Returns Doris's name for the kind of failure (LS6)."""
    if isinstance(error, LoadRejectedError) or getattr(error, "kind", "") == "data_quality":
        return "DATA_QUALITY_ERROR"
    if isinstance(error, UnavailableError) and error.kind == "timeout":
        return "TIMEOUT"
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (AccessDeniedError, "NOT_AUTHORIZED"),
        (InvalidInputError, "INVALID_ARGUMENT"),
        (NotFoundError, "NOT_FOUND"),
        (ConflictError, "CONFLICT"),
        (UnavailableError, "UNAVAILABLE"),
        (OSError, "IO_ERROR"),
        (pa.ArrowException, "INTERNAL_ERROR"),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), "INTERNAL_ERROR")
