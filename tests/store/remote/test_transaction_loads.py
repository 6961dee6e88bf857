"""The tests of `store.transaction.test_transaction_loads`, with a store elsewhere."""

from tests.store.transaction import test_transaction_loads as same
from tests.support.remote.same_tests import same_tests

globals().update(same_tests(same, {}))
