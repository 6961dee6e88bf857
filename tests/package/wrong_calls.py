"""Calls that a type checker must refuse, each with the code of its error. Nothing runs this file."""

from seqstore import Session, Store, Table, Transaction


def wrong(store: Store, table: Table, transaction: Transaction, session: Session) -> None:
    store.create_table("db.t", "k BIGINT")  # expect: arg-type
    store.transaction(isolation=3)  # expect: arg-type
    count: str = table.count()  # expect: assignment
    table.upsert([], mode=1)  # expect: arg-type
    table.upsert([], no_such_option=1)  # expect: call-arg
    table.update({}, retries="often")  # expect: arg-type
    count = transaction.commit().version  # expect: attr-defined
    session.execute(1)  # expect: arg-type
    for result in session.execute(count):
        result.affected_rows.upper()  # expect: attr-defined
