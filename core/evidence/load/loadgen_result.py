"""Result of a cross-check with MLCommons' LoadGen, and its verdict in words. Pure.

LoadGen judges by its own rules; nothing here judges again. Results are "LoadGen-compatible, unofficial":
MLPerf's rules also prescribe durations, numbers of queries, models and data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from core import wire
from core.evidence.load.load_types import LoadVerdict

LABEL = "LoadGen-compatible, unofficial"


class LoadGenResult(TypedDict):
    """Result of a cross-check: one test of LoadGen for each scenario."""

    label: str  # "LoadGen-compatible, unofficial"
    model: str  # path
    sha256: str  # of the model and its external data
    verdict: LoadVerdict  # FAIL: LoadGen measured more queries above the limit than allowed; UNDECIDED: a
    # test is invalid for another reason, for example because it had too few queries
    words: str  # the verdict in a sentence
    tests: list[wire.LoadGenReply]


def verdict(tests: Sequence[wire.LoadGenReply]) -> LoadVerdict:
    """Return the verdict on all tests: PASS if LoadGen calls each of them valid."""
    if any(one["limit_met"] is False for one in tests):
        return "FAIL"
    return "PASS" if all(one["valid"] for one in tests) else "UNDECIDED"


def sentence(tests: Sequence[wire.LoadGenReply]) -> str:
    """Return what LoadGen says about the tests, one or more, marked as unofficial."""
    invalid = [one["scenario"] for one in tests if not one["valid"]]
    if len(tests) == 1:
        said = f"calls the scenario {tests[0]['scenario']} {'invalid' if invalid else 'valid'}"
    elif not invalid:
        said = f"calls all {len(tests)} scenarios valid"
    else:
        said = f"calls {len(invalid)} of {len(tests)} scenarios invalid ({', '.join(invalid)})"
    return f"{LABEL}: LoadGen {tests[0]['version']} {said}."
