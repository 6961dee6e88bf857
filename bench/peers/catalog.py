"""All peers that run scripts, by name."""

from __future__ import annotations

from typing import Final

from bench.peers.base import KeyedPeer
from bench.peers.clickhouse import ClickHouse
from bench.peers.duck import AppendingDuckDB, KeyedDuckDB
from bench.peers.lake import DeltaRs, Lance, PolarsRewrite, PyIceberg
from bench.peers.ours import Seqstore
from bench.peers.rows import LmdbRows, SqliteRows

OURS: Final[type[KeyedPeer]] = Seqstore
PEERS: Final[dict[str, type[KeyedPeer]]] = {
    peer.name: peer
    for peer in (
        Seqstore,
        KeyedDuckDB,
        AppendingDuckDB,
        ClickHouse,
        DeltaRs,
        PolarsRewrite,
        Lance,
        PyIceberg,
        LmdbRows,
        SqliteRows,
    )
}
