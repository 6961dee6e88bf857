"""The tests of `store.load.test_load`, with a store elsewhere."""

from tests.store.load import test_load as same
from tests.support.remote.same_tests import same_tests

globals().update(
    same_tests(
        same,
        {
            "test_a_label_is_free_after_its_time": "moves the clock of this process",
            "test_a_table_that_is_dropped_while_a_load_looks_its_keys_up_is_no_damage": "steps into a load",
            "test_every_use_of_a_dropped_table_says_so": "looks at files",
            "test_leaving_a_load_without_commit_leaves_nothing": "looks at files",
        },
    )
)
