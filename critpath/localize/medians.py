"""Medians and median deviations of many small groups, also without each member."""

from __future__ import annotations

import numpy as np

from critpath.model import F64, I64


def medians_without_each(values: F64, sizes: I64) -> tuple[F64, F64, F64, F64]:
    """Return median and MAD of every group without each of its members, and of all.

    Parameters
    ----------
    values : float64 [groups, most]
        A group's members first, infinity after them.
    sizes : int64 [groups]
        Members of each, two at least.

    Returns
    -------
    median, mad : float64 [groups, most]
        Of the group without the member in that place; meaningless after the members.
    median_of_all, mad_of_all : float64 [groups]

    Notes
    -----
    Without one member a group's median takes at most three values: the member is
    below the middle, in it or above.  So three sorted tables of deviations serve all
    members, whatever the groups' size.
    """
    ordered = np.sort(values, axis=1)
    median = _median_without(ordered, sizes, values)
    of_all = _median(ordered, sizes)
    mad_of_all = _median(np.sort(np.abs(values - of_all[:, None]), axis=1), sizes)
    mad = np.zeros_like(values)
    groups = np.arange(len(values))
    for member in (np.zeros(len(sizes), np.int64), (sizes - 1) // 2, sizes - 1):
        centre = _median_without(ordered, sizes, ordered[groups, member][:, None])
        deviation = np.abs(values - centre)
        found = _median_without(np.sort(deviation, axis=1), sizes, deviation)
        mad = np.where(median == centre, found, mad)
    return median, mad, of_all, mad_of_all


def _median(ordered: F64, sizes: I64) -> F64:
    groups = np.arange(len(ordered))
    result: F64 = (ordered[groups, (sizes - 1) // 2] + ordered[groups, sizes // 2]) / 2
    return result


def _median_without(ordered: F64, sizes: I64, members: F64) -> F64:
    """Return the medians of sorted groups without one member each, given by value."""
    groups = np.arange(len(ordered))
    low, high = (sizes - 2) // 2, (sizes - 1) // 2

    def nth(place: I64) -> F64:
        # What comes after the member moves down by one place.
        here, next_one = ordered[groups, place], ordered[groups, place + 1]
        result: F64 = np.where(members > here[:, None], here[:, None], next_one[:, None])
        return result

    return (nth(low) + nth(high)) / 2
