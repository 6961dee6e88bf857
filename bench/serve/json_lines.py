"""Stream loads of JSON lines, measured in process: `python -m bench.serve.json_lines`; some minutes.

Each round loads the lines of a kind into a new table, in `bench/work`; with `--array` the same objects as one
array, which is read by `strip_outer_array` and has at most 100 MB. The columns of the result are those of
the best round: MB/s from the first byte to the visible version, and milliseconds of processor time a MB, of
all threads.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from seqstore import Column, Store, TableSchema, parse_type
from seqstore.loaders.stream_load import stream_load

Fields = dict[str, list[str]]

TYPES: Final = {
    "k": "BIGINT",
    "city": "VARCHAR(20)",
    "x": "DOUBLE",
    "y": "DOUBLE",
    "z": "DOUBLE",
    "n": "BIGINT",
    "id": "VARCHAR(36)",
    "price": "DECIMAL(12,2)",
    "note": "STRING",
}
_CITIES: Final = np.array(['"Berlin"', '"Paris"', '"Rome"', '"Oslo"'])
_BLOCK_ROWS: Final = 50_000


def _plain(first: int, rows: int, rng: np.random.Generator) -> Fields:
    """Short numbers only."""
    keys = (np.arange(first, first + rows) * 2_654_435_761) % (1 << 40)
    return {
        "k": [str(key) for key in keys.tolist()],
        "city": _CITIES[rng.integers(0, 4, rows)].tolist(),
        **{name: [repr(x) for x in (rng.random(rows) * 1000).round(3).tolist()] for name in "xyz"},
        "n": [str(n) for n in rng.integers(0, 10**6, rows).tolist()],
        "note": [f'"note number {n} of an event"' for n in rng.integers(0, 10**6, rows).tolist()],
    }


def _doubles(first: int, rows: int, rng: np.random.Generator) -> Fields:
    """Doubles of up to 17 digits."""
    return _plain(first, rows, rng) | {name: [repr(x) for x in rng.random(rows).tolist()] for name in "xyz"}


def _identities(first: int, rows: int, rng: np.random.Generator) -> Fields:
    """UUIDs."""
    ids = [f'"{uuid.UUID(bytes=rng.bytes(16))}"' for _ in range(rows)]
    return _plain(first, rows, rng) | {"id": ids}


def _integers(first: int, rows: int, rng: np.random.Generator) -> Fields:
    """Integers of 16 digits."""
    return _plain(first, rows, rng) | {"n": [str(n) for n in rng.integers(10**15, 10**16, rows).tolist()]}


def _decimals(first: int, rows: int, rng: np.random.Generator) -> Fields:
    """Amounts with two digits behind the point, zeros among them, for a DECIMAL."""
    cents = rng.integers(0, 10**7, rows).tolist()
    return _plain(first, rows, rng) | {"price": [f"{n // 100}.{n % 100:02}" for n in cents]}


def _odd(first: int, rows: int, rng: np.random.Generator) -> Fields:
    """Doubles of 17 digits beside nested values, escapes and nulls."""
    fields = _doubles(first, rows, rng)
    chosen = rng.integers(0, 4, rows).tolist()
    odd = ('{"a":[1,2.5],"b":"c"}', '"a \\"quoted\\" word\\n"', "null", '"plain"')
    return fields | {
        "note": [odd[n] for n in chosen],
        "n": ["null" if n == 1 else text for n, text in zip(chosen, fields["n"], strict=True)],
    }


KINDS: Final[dict[str, Callable[[int, int, np.random.Generator], Fields]]] = {
    "short numbers": _plain,
    "doubles of 17 digits": _doubles,
    "UUIDs": _identities,
    "integers of 16 digits": _integers,
    "amounts": _decimals,
    "nested, escapes, nulls": _odd,
}


def json_lines(kind: str, size: int) -> bytes:
    """Returns lines of at least so many bytes."""
    rng, out, first = np.random.default_rng(1), io.BytesIO(), 0
    while out.tell() < size:
        fields = KINDS[kind](first, _BLOCK_ROWS, rng)
        first += _BLOCK_ROWS
        line = "{" + ",".join(f'"{name}":%s' for name in fields) + "}\n"
        out.write("".join([line % values for values in zip(*fields.values(), strict=True)]).encode())
    return out.getvalue()


def array_of(lines: bytes) -> bytes:
    """Returns the objects of lines as one array."""
    return b"[" + lines.rstrip(b"\n").replace(b"\n", b",\n") + b"]\n"


def load(work: Path, body: bytes, **headers: str) -> tuple[float, float]:
    """Loads a body with a line for each row into a new table; returns seconds, and those of processors."""
    shutil.rmtree(work, ignore_errors=True)
    with Store.open(work) as store:
        store.create_database("db")
        columns = [Column(name, parse_type(kind), nullable=name != "k") for name, kind in TYPES.items()]
        store.create_table("db.t", TableSchema.create(columns, key=["k"]))
        source = io.BytesIO(body)
        started, worked = time.monotonic(), time.process_time()
        reply = stream_load(store, "db", "t", source, {"format": "json", **headers})
        taken = time.monotonic() - started, time.process_time() - worked
        if reply["Status"] != "Success" or store.table("db.t").count() != body.count(b"\n"):
            raise RuntimeError(str(reply))
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--array", action="store_true", help="one array instead of lines")
    parser.add_argument("--work", type=Path, default=Path("bench/work/json_lines"))
    given = parser.parse_args()
    headers = {"strip_outer_array": "true"} if given.array else {}
    print(f"| {'array' if given.array else 'lines'} | MB/s | processor ms/MB |\n| --- | --- | --- |")
    for kind in given.only:
        body = json_lines(kind, given.megabytes << 20)
        body = array_of(body) if given.array else body
        size = len(body) / 2**20
        taken = [load(given.work, body, **headers) for _ in range(given.rounds)]
        best = size / min(seconds for seconds, _ in taken)
        work = 1000 * min(seconds for _, seconds in taken) / size
        print(f"| {kind} | {best:.0f} | {work:.1f} |", flush=True)
    shutil.rmtree(given.work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
