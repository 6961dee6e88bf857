"""Users: what is stored of a password, who gets in, and what a grant allows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
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
    assert account.grants == {"*": ("ALTER", "CREATE", "DROP", "LOAD", "SELECT")}


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


def test_a_grant_on_a_table_holds_on_that_table_only(store: Store) -> None:
    accounts = store.accounts
    accounts.create("ann")
    accounts.grant("ann", ["LOAD"], "db.t")
    account = accounts.find("ann")
    assert account is not None
    assert account.may("LOAD", "db", "t")
    assert not any(
        account.may("LOAD", *where) for where in [("db", "u"), ("db",), ("other", "t"), ("d", "b.t")]
    )
    assert account.may_within("LOAD", "db")
    assert not account.may_within("LOAD", "d")
    assert (account.sees("db"), account.sees_table("db", "t"), account.sees_table("db", "u")) == (
        True,
        True,
        False,
    )
    accounts.revoke("ann", ["LOAD"], "db.t")
    with pytest.raises(AccessDeniedError, match="on database 'db' or on its table 't'"):
        accounts.require("ann", "LOAD", "db", "t")


def test_alter_of_an_earlier_version_includes_create_and_drop(store: Store) -> None:
    """Its records have no roles; ALTER allowed all three."""
    with store.catalog.write() as tx:
        tx.put("users", b"old", {"salt": b"", "slow_hash": b"", "mysql_hash": b"",
                                 "grants": {"db": ["ALTER"], "x": ["SELECT"]}})  # fmt: skip
    account = store.accounts.find("old")
    assert account is not None
    assert account.grants == {"db": ("ALTER", "CREATE", "DROP"), "x": ("SELECT",)}
    store.accounts.revoke("old", ["DROP"], "db")
    account = store.accounts.find("old")
    assert account is not None
    assert account.grants["db"] == ("ALTER", "CREATE")


def test_a_role_gives_its_privileges_until_it_is_taken_or_dropped(store: Store) -> None:
    accounts, roles = store.accounts, store.accounts.roles
    accounts.create("ann")
    for name in ("reader", "writer"):
        roles.create(name)
    roles.grant("reader", ["SELECT"], "db")
    roles.grant("writer", ["LOAD"], "db.t")
    accounts.grant_roles("ann", ["reader", "writer"])
    accounts.require("ann", "SELECT", "db", "u")
    accounts.require("ann", "LOAD", "db", "t")
    accounts.set_password("ann", "one")  # keeps them
    accounts.revoke_roles("ann", ["reader"])
    roles.drop("writer")
    account = accounts.find("ann")
    assert account is not None
    assert (account.roles, account.effective) == ((), {})
    roles.create("writer")  # another one, which the user never had
    assert not account.sees("db")


def test_alter_given_to_a_role_includes_neither_create_nor_drop(store: Store) -> None:
    """Roles were never stored by the versions whose ALTER included them."""
    store.accounts.roles.create("changer")
    store.accounts.roles.grant("changer", ["ALTER"], "db")
    store.accounts.create("ann", roles=["changer"])
    store.accounts.require("ann", "ALTER", "db")
    for privilege in ("CREATE", "DROP"):
        with pytest.raises(AccessDeniedError):
            store.accounts.require("ann", privilege, "db")


def test_roles_that_cannot_be_are_refused(store: Store) -> None:
    roles = store.accounts.roles
    for name in ("admin", "operator"):
        with pytest.raises((InvalidInputError, AlreadyExistsError)):
            roles.create(name)
    with pytest.raises(InvalidInputError, match="built in"):
        roles.grant("admin", ["SELECT"], "db")
    with pytest.raises(NotFoundError, match="Unknown role 'none'"):
        store.accounts.create("ann", roles=["none"])
    assert store.accounts.find("ann") is None
    store.accounts.create("bob", roles=["admin"])
    store.accounts.require("bob", "ADMIN")


def test_a_refusal_names_where_the_privilege_would_be_enough(store: Store) -> None:
    store.accounts.create("ann")
    for where, given in (
        ("all databases", {}),
        ("database 'db'", {"database": "db"}),
        ("database 'db' or on its table 't'", {"database": "db", "table": "t"}),
        ("database 'db' or on a table of it", {"database": "db", "within": True}),
    ):
        with pytest.raises(AccessDeniedError, match=f"needs the LOAD privilege on {where}: GRANT"):
            store.accounts.require("ann", "LOAD", **given)


def test_a_password_has_at_most_1024_bytes(store: Store) -> None:
    store.accounts.create("ann", "é" * 512)
    assert store.accounts.log_in("ann", "é" * 512).name == "ann"
    with pytest.raises(InvalidInputError, match="a password has at most 1024 bytes"):
        store.accounts.create("bob", "é" * 512 + "x")


@pytest.mark.parametrize("name", ["", "a b", "a\tb", "a\0b", "a:b", "a" * 1000])
def test_a_role_has_a_name_of_printable_text(store: Store, name: str) -> None:
    with pytest.raises(InvalidInputError, match="bytes of printable text without blanks"):
        store.accounts.roles.create(name)


@pytest.fixture(scope="module")  # each of its accounts is a slow hash
def at_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a user at eight hosts; the password is the host."""
    with Store.open(tmp_path_factory.mktemp("hosts") / "data") as opened:
        for host in ("%", "10.%", "10.9.%", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3", "localhost", "FE80::1"):
            opened.accounts.create("ann", host, host=host)
        yield opened


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("10.1.2.4", "10.1.2.0/24"),
        ("10.1.9.9", "10.1.0.0/16"),
        ("10.9.9.9", "10.9.%"),
        ("10.8.9.9", "10.%"),
        ("11.0.0.1", "%"),
        ("127.0.0.1", "localhost"),
        ("::1", "localhost"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::1"),
        ("unix", "%"),
    ],
)
def test_the_most_specific_host_counts_at_a_login(at_hosts: Store, address: str, host: str) -> None:
    account = at_hosts.accounts.log_in("ann", host.upper() if ":" in host else host, address)
    assert account.name == ("ann" if host == "%" else f"ann:{host}")
    assert at_hosts.accounts.known("ann", host.upper() if ":" in host else host, address) == account


def test_a_user_at_hosts_only_cannot_log_in_from_others(store: Store) -> None:
    store.accounts.create("ann", "one", host="10.%")
    with pytest.raises(AccessDeniedError, match="Access denied for user 'ann'"):
        store.accounts.log_in("ann", "one", "192.168.0.1")
    for name in ("ann:10.%", "ann@10.%"):  # the name in the catalog is no name of a client
        with pytest.raises(AccessDeniedError):
            store.accounts.log_in(name, "one", "10.0.0.1")


@pytest.mark.parametrize("host", ["", "example.com", "10.0.0.1/8", "10.0.0.0/33", "10.%'", "x" * 65 + "%"])
def test_a_host_that_is_no_address_is_refused(store: Store, host: str) -> None:
    with pytest.raises(InvalidInputError, match="host names are not resolved"):
        store.accounts.create("ann", host=host)
