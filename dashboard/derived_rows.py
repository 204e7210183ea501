"""What long lists show of stored trials, derived once per row, as reading and checking a whole row is slow.

A row that changes has another checksum and is read again. Ids and checksums come from the store as the person
of this session sees it, so nothing is shown of a deleted or private trial.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import streamlit as st

from core.evidence.measurement import Trial
from core.store import Query
from dashboard import state

KEPT = 40_000  # rows of one kind of value
MANY = 200  # rows whose reading takes visibly long

Derived = TypeVar("Derived")


def of_trials(
    query: Query, name: str, derive: Callable[[Trial], Derived], *, limit: int
) -> dict[str, Derived]:
    """Return what `derive` makes of the first matching trials, by id and in order, without damaged ones.

    Args:
        query: which trials.
        name: identifies `derive` in this process.
        derive: makes a value that callers do not change, from a trial alone, without its raw measurements.
        limit: largest number of trials.
    """
    known = _known(name)
    checksums = state.store().checksums(query, limit=limit)
    if lacking := [one for one in checksums if one not in known]:
        wanted = Query(kind=query.kind, archived=True, ids=[trial_id for trial_id, _ in lacking])
        words = f"Reading {len(lacking):,} trials…"
        with st.spinner(words, show_time=True) if len(lacking) > MANY else nullcontext():
            found, _ = state.store().trial_page(wanted, limit=len(lacking))
        derived = {one.id: derive(one) for one in found if one.state != "DAMAGED"}
        known |= {one: derived.get(one[0]) for one in lacking}
    if len(known) > KEPT:
        for old in set(known) - set(checksums):
            known.pop(old, None)
    return {one[0]: value for one in checksums if (value := known.get(one)) is not None}


@st.cache_resource(show_spinner=False)
def _known(name: str) -> dict[tuple[str, str], Any]:
    """Return the values of one kind by id and checksum; None for a damaged row."""
    return {}
