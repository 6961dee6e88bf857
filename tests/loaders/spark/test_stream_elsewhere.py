"""The tests of `loaders.spark.test_stream`, with a store elsewhere."""

from tests.loaders.spark import test_stream as same
from tests.support.remote.same_tests import same_tests

ENDED = "test_a_committer_whose_batch_was_ended_by_a_new_start_publishes_nothing"

globals().update(
    same_tests(
        same,
        {
            ENDED: "the server's words for a load that has ended are others",
            "test_batches_end_at_versions_that_are_kept": "tasks compute the changes, and meet the error",
            "test_many_changes_travel_by_files_that_go_with_their_batch": "there are no files",
        },
    )
)
