"""The median of many numbers, from a narrow part of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MANY = 50_000
SAMPLE = 4096
# Bounds within the sorted sample: the median of unordered numbers lies five deviations inside.
LOWER, UPPER = 0.46, 0.54


def median(values: npt.NDArray[np.float64]) -> float:
    """What ``np.median`` gives, to the bit; a third of its time where there are many numbers.

    A sample says between which bounds the median lies, the rest is counted, and only what lies
    within is sorted. Where the sample was wrong, as it may be for numbers in some order, all are.

    Args:
        values: (N,) float64, N >= 1, none of them NaN.

    Example:
        >>> median(np.array([3.0, 1.0, 2.0, 7.0]))
        2.5
    """
    n = len(values)
    if n >= MANY:
        sample = np.sort(values[:: n // SAMPLE])
        low, high = sample[int(LOWER * len(sample))], sample[int(UPPER * len(sample))]
        under = values < low
        below = int(np.count_nonzero(under))
        within = values[~under & (values <= high)]
        a, b = (n - 1) // 2 - below, n // 2 - below
        if a >= 0 and b < len(within) <= n // 2:
            middle = np.partition(within, (a, b))
            return float(middle[a] if a == b else (middle[a] + middle[b]) / 2)
    return float(np.median(values))
