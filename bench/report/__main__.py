"""Makes the page and the README's charts from a result file: `python -m bench.report FILE.json`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.report import page, records


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 1 when the file is none of results."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description="The page of a result file.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--html", type=Path, default=Path(__file__).parent / "index.html", help="the page")
    parser.add_argument(
        "--readme", type=Path, metavar="FOLDER", help="write the README's two charts there too"
    )
    given = parser.parse_args(words)
    try:
        content = records.read_json(given.results)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    page.write_page(given.html, content["machine"], content["results"], content.get("problems", ()))
    files = [given.html]
    if given.readme is not None:
        files += page.write_readme_charts(given.readme, content["results"])
    print("\n".join(f"written: {file}" for file in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
