"""Users: what is stored of a password, who gets in, and what a grant allows."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from seqstore import AccessDeniedError, AlreadyExistsError, InvalidInputError, NotFoundError, Store
from seqstore.store.catalog.accounts import matches_scramble


def test_root_is_there_from_the_start_with_an_empty_password_and_may_everything(store: Store) -> None:
    assert store.accounts.names() == ["root"]
    assert store.accounts.log_in("root", "").may("LOAD", "any")
    with pytest.raises(AccessDeniedError, match="Access denied for user 'root'"):
        store.accounts.log_in("root", "guess")


def test_a_password_is_stored_in_no_readable_form(store: Store, tmp_path: Path) -> None:
    store.accounts.create("ann", "a-very-secret-word")
    catalog = (tmp_path / "data" / "catalog" / "data.mdb").read_bytes()
    assert b"ann" in catalog
    assert b"a-very-secret-word" not in catalog
    assert hashlib.sha1(b"a-very-secret-word").digest() not in catalog


def test_the_right_password_gets_in_twice_and_a_changed_one_not_at_all(store: Store) -> None:
    store.accounts.create("ann", "one")
    assert store.accounts.log_in("ann", "one").name == store.accounts.log_in("ann", "one").name == "ann"
    store.accounts.set_password("ann", "two")
    with pytest.raises(AccessDeniedError):
        store.accounts.log_in("ann", "one")
    assert store.accounts.log_in("ann", "two").name == "ann"


@pytest.mark.parametrize(
    ("name", "password"), [("nobody", ""), ("nobody", "x"), ("", ""), ("ann", ""), ("ann", "x" * 5000)]
)
def test_wrong_names_and_passwords_are_told_apart_by_nothing(store: Store, name: str, password: str) -> None:
    store.accounts.create("ann", "one")
    with pytest.raises(AccessDeniedError, match="Access denied for user"):
        store.accounts.log_in(name, password)


def test_a_scramble_of_the_mysql_protocol_is_checked_against_the_double_hash(store: Store) -> None:
    store.accounts.create("ann", "one")
    account = store.accounts.log_in("ann", "one")
    nonce = bytes(range(20))

    def scramble(password: bytes) -> bytes:
        once = hashlib.sha1(password).digest()
        mask = hashlib.sha1(nonce + hashlib.sha1(once).digest()).digest()
        return bytes(a ^ b for a, b in zip(once, mask, strict=True))

    assert matches_scramble(account, scramble(b"one"), nonce)
    assert not matches_scramble(account, scramble(b"two"), nonce)
    assert not matches_scramble(account, b"", nonce)
    root = store.accounts.log_in("root", "")
    assert matches_scramble(root, b"", nonce)
    assert not matches_scramble(root, scramble(b"one"), nonce)


def test_grants_hold_on_their_database_only_and_admin_includes_all(store: Store) -> None:
    accounts = store.accounts
    accounts.create("ann")
    accounts.grant("ann", ["LOAD_PRIV", "select"], "db")
    accounts.require("ann", "LOAD", "db")
    with pytest.raises(AccessDeniedError, match="needs the LOAD privilege on database 'other'"):
        accounts.require("ann", "LOAD", "other")
    with pytest.raises(AccessDeniedError, match="ALTER"):
        accounts.require("ann", "ALTER", "db")
    accounts.grant("ann", ["ADMIN"])
    accounts.require("ann", "ALTER", "anything")
    accounts.revoke("ann", ["ADMIN"])
    accounts.revoke("ann", ["LOAD"], "db")
    with pytest.raises(AccessDeniedError):
        accounts.require("ann", "LOAD", "db")
    accounts.require("ann", "SELECT", "db")


def test_all_grants_everything_but_admin(store: Store) -> None:
    store.accounts.create("ann")
    store.accounts.grant("ann", ["ALL"])
    account = store.accounts.log_in("ann", "")
    assert account.grants == {"*": ("ALTER", "LOAD", "SELECT")}


def test_what_cannot_be_done_says_why(store: Store) -> None:
    accounts = store.accounts
    accounts.create("ann")
    accounts.create("ann", if_not_exists=True)
    with pytest.raises(AlreadyExistsError, match="User 'ann' already exists"):
        accounts.create("ann")
    with pytest.raises(InvalidInputError, match="unknown privilege 'FLY'"):
        accounts.grant("ann", ["FLY"])
    with pytest.raises(NotFoundError, match="holds no LOAD"):
        accounts.revoke("ann", ["LOAD"], "db")
    with pytest.raises(InvalidInputError, match="root"):
        accounts.drop("root")
    with pytest.raises(InvalidInputError, match="root"):
        accounts.revoke("root", ["ADMIN"])
    for name in ("", "a b", "a:b", "x" * 65):
        with pytest.raises(InvalidInputError, match="user name"):
            accounts.create(name)
    with pytest.raises(NotFoundError, match="Unknown user 'bob'"):
        accounts.set_password("bob", "x")
    with pytest.raises(NotFoundError, match="Unknown user 'bob'"):
        accounts.drop("bob")


def test_users_are_there_after_reopening_and_gone_after_a_drop(store: Store, tmp_path: Path) -> None:
    store.accounts.create("ann", "one")
    store.accounts.set_password("root", "two")
    with Store.open(tmp_path / "data") as again:
        assert again.accounts.names() == ["ann", "root"]
        assert again.accounts.log_in("root", "two").may("ADMIN")
        again.accounts.drop("ann")
    assert store.accounts.find("ann") is None
