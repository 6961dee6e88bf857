"""Errors: the tree is a promise, every error crosses process borders, its fields are readable."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from seqstore import RejectedRow
from seqstore.store import errors
from seqstore.store.errors import LabelExistsError, LoadRejectedError, StoreError

TREE = {
    "StoreError": "Exception",
    "InvalidInputError": "StoreError ValueError",
    "LoadRejectedError": "InvalidInputError",
    "NotFoundError": "StoreError LookupError",
    "VersionExpiredError": "NotFoundError",
    "AlreadyExistsError": "StoreError",
    "LabelExistsError": "AlreadyExistsError",
    "ConflictError": "StoreError",
    "UnavailableError": "StoreError",
    "FormatError": "StoreError",
    "ClosedError": "StoreError",
    "CommitUnknownError": "StoreError",
    "CorruptionError": "StoreError",
}
CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, StoreError)
]


def test_the_error_tree_is_the_documented_one() -> None:
    found = {cls.__name__: " ".join(base.__name__ for base in cls.__bases__) for cls in CLASSES}
    assert found.items() >= TREE.items(), "callers catch by these; classes may only be added"
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in found)
    assert all(cls.__doc__ for cls in CLASSES)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickle_and_copy(cls: type[StoreError]) -> None:
    """Spark carries them from executors to the driver."""
    error = cls("what, on what", kind="a_kind", rejected=[RejectedRow(3, "k", "no INT")], txn_id=7)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is cls
        assert str(again) == again.message == "what, on what"
        assert (again.kind, again.txn_id, again.rejected) == ("a_kind", 7, [RejectedRow(3, "k", "no INT")])


def test_fields_are_attributes_and_nothing_else_is() -> None:
    error = LabelExistsError("taken", txn_id=7, status="VISIBLE")
    assert (error.txn_id, error.status, error.kind) == (7, "VISIBLE", "")
    with pytest.raises(AttributeError, match="nope"):
        _ = error.nope
    assert not hasattr(LoadRejectedError("x"), "__deepcopy__")
