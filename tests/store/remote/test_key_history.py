"""The tests of `store.history.test_key_history`, with a store elsewhere."""

from tests.store.history import test_key_history as same
from tests.support.remote.same_tests import same_tests

globals().update(same_tests(same, {}))
