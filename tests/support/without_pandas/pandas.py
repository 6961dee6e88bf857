"""Stands for pandas in processes that tests start: they run as for a user that has not installed it.

pyarrow imports pandas as soon as it makes an array, which takes a quarter of the time of a short process.
"""

from __future__ import annotations

raise ModuleNotFoundError("processes of tests run without pandas", name="pandas")
