"""The generated rows are what the README says of them, and the same for the same seed."""

from __future__ import annotations

import numpy as np

from bench.inputs.orders import KEY, SCHEMA, SEQUENCE, base_rows, fingerprints, key_count, update_batch

ROWS = 20_000


def test_the_same_seed_gives_the_same_rows() -> None:
    assert base_rows(ROWS, 5).equals(base_rows(ROWS, 5))
    assert update_batch(ROWS, 1_000, 2, 5).equals(update_batch(ROWS, 1_000, 2, 5))
    assert not update_batch(ROWS, 1_000, 2, 5).equals(update_batch(ROWS, 1_000, 3, 5))


def test_the_base_has_every_key_once_in_random_order_at_about_100_bytes() -> None:
    base = base_rows(ROWS, 5)
    keys = np.asarray(base.column(KEY))
    assert base.schema.equals(SCHEMA)
    assert np.array_equal(np.sort(keys), np.arange(ROWS))
    assert (keys[1:] < keys[:-1]).mean() > 0.4
    assert 95 < base.nbytes / ROWS < 105


def test_a_tenth_of_a_batch_is_late_and_a_twentieth_repeats_keys() -> None:
    base, batch = base_rows(ROWS, 5), update_batch(ROWS, 10_000, 3, 5)
    keys, sequence = np.asarray(batch.column(KEY)), np.asarray(batch.column(SEQUENCE))
    late = sequence < np.asarray(base.column(SEQUENCE)).min()
    assert 0.09 < late.mean() < 0.11
    assert len(np.unique(keys)) == 9_500
    assert 0.03 < (keys >= ROWS).mean() < 0.07
    assert keys.max() < key_count(ROWS)


def test_equal_sequences_occur_within_a_key() -> None:
    batch = update_batch(ROWS, 10_000, 3, 5)
    pairs = np.stack((np.asarray(batch.column(KEY)), np.asarray(batch.column(SEQUENCE))))
    assert len(np.unique(pairs, axis=1).T) < len(batch)


def test_fingerprints_of_slices_are_slices_of_fingerprints() -> None:
    [batch] = update_batch(ROWS, 1_000, 1, 5).to_batches()
    assert np.array_equal(fingerprints(batch)[37:900], fingerprints(batch.slice(37, 863)))
    assert len(np.unique(fingerprints(batch))) == batch.num_rows
