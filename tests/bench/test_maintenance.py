"""The maintenance workload, tiny."""

from __future__ import annotations

import pytest

from bench.engine import maintenance


@pytest.mark.maintenance
def test_the_workload_runs_and_tells_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("BASE_ROWS", 3_000), ("LOAD_ROWS", 50), ("UPSERT_ROWS", 200), ("FEED_ROWS", 2_000)):
        monkeypatch.setattr(maintenance, name, size)
    monkeypatch.setattr(maintenance, "SETTLE_SECONDS_MAX", 0.0)
    told = maintenance.run(25, with_feed=True)
    assert told["with_compaction"]["compactions"] > 0
    assert told["with_compaction"]["segments_end"] <= 16, "loads wait until there are half as many more"
    assert told["without_compaction"]["compactions"] == 0
    assert told["with_compaction"]["write_amplification"] > 1
    assert {"as_left", "settled", "loaded_once", "change_feed_100k_of_10m_s"} <= told.keys()
    assert {"space_amplification", "space_amplification_after_vacuum"} <= told.keys()
