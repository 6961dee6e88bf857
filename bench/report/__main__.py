"""Makes the page and the README's charts from result files: `python -m bench.report RUN.json SPARK.json`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.report import page, records


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 1 when a file is none of results."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description="The page of result files.")
    parser.add_argument("results", type=Path, nargs="+", help="of bench.run, and of bench.spark")
    parser.add_argument("--html", type=Path, default=Path(__file__).parent / "index.html", help="the page")
    parser.add_argument(
        "--readme", type=Path, metavar="FOLDER", help="write the README's two charts there too"
    )
    given = parser.parse_args(words)
    try:
        contents = [records.read_json(path) for path in given.results]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    results = [result for content in contents for result in content["results"]]
    problems = [problem for content in contents for problem in content.get("problems", ())]
    page.write_page(given.html, contents[0]["machine"], results, problems)
    files = [given.html]
    if given.readme is not None:
        files += page.write_readme_charts(given.readme, results)
    print("\n".join(f"written: {file}" for file in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
