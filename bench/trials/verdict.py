"""Has something become slower? An answer that knows the noise.

Two commits run in turns; each turn gives one ratio, after through before. The verdict rests on the median of
the ratios and on its bootstrap interval: the medians of ratios drawn anew with replacement, of which the
middle 95 % span the interval. What one disturbed turn adds to one ratio moves neither by much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

Word = Literal["lost", "slower", "the same", "faster", "unsure", "too few turns"]
LOSS: Final = 1.10
TURNS_MIN: Final = 5
_DRAWS: Final = 4_000
_SEED: Final = 1


@dataclass(frozen=True)
class Verdict:
    """What the turns say.

    Attributes:
        ratio: median of after through before; below 1 is faster.
        low, high: the bootstrap interval of it.
        word: `lost`, a tenth slower or more, and surely slower; `slower`, surely but by less; `faster`,
            surely; `the same`, the whole interval is within a tenth; `unsure`, the noise is larger than that.
    """

    ratio: float
    low: float
    high: float
    word: Word

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x ({self.low:.2f} to {self.high:.2f}): {self.word}"


def verdict(ratios: Sequence[float]) -> Verdict:
    """The verdict on the ratios of some turns.

    Raises:
        ValueError: there are none.
    """
    if not ratios:
        raise ValueError("expected the ratio of one turn or more, found none")
    values = np.asarray(ratios, dtype=np.float64)
    rng = np.random.default_rng(_SEED)
    medians = np.median(rng.choice(values, (_DRAWS, len(values))), axis=1)
    low, high = (float(each) for each in np.quantile(medians, (0.025, 0.975)))
    ratio = float(np.median(values))
    return Verdict(ratio, low, high, _word(len(values), ratio, low, high))


def _word(turns: int, ratio: float, low: float, high: float) -> Word:
    if turns < TURNS_MIN:
        return "too few turns"
    if low > 1:
        return "lost" if ratio >= LOSS else "slower"
    if high < 1:
        return "faster"
    return "the same" if low > 1 / LOSS and high < LOSS else "unsure"
