"""Answers of fleet runs: what a run says, and the questions of its second phase."""

from __future__ import annotations

from core.api.fleet_requests import Asked
from core.evidence.fleet.fleet_types import FleetRun
from core.evidence.fleet.matrix import Configuration
from core.evidence.fleet.portability import Candidates, candidate_spec, candidates
from core.run.fleet.answers import latest as latest
from core.run.fleet.answers import summary as summary
from core.run.fleet.answers import summary_of as summary_of
from core.run.fleet.on_host import FILE, TEXT
from core.spec import SCHEMA
from core.spec.strict_yaml import dump_yaml

# --- the second phase ---------------------------------------------------------------------------------------


def portability_questions(run: FleetRun) -> list[Asked]:
    """Return the comparisons of a second phase: the winners of each search, on every host.

    A search without a winner, or with a second phase already, gives none.

    Args:
        run: with the documents of its answers; its searches have ended.
    """
    compared = {one.model.sha256 for one in run.questions if one.phase == "portability"}
    searches = [one for one in run.questions if one.command == "search" and one.model.sha256 not in compared]
    found = [candidates(run, one.number) for one in searches]
    return [_comparison(run, one) for one in found if one.configurations]


def _comparison(run: FleetRun, found: Candidates) -> Asked:
    question = next(one for one in run.questions if one.number == found.question)
    texts = {
        f"winner-{number}.yaml": _text(one, f"{FILE}{question.model.sha256}")
        for number, one in enumerate(found.configurations, start=1)
    }
    return Asked(
        command="compare",
        model=question.model.path or question.model.name,
        arguments=[*(f"--candidate={TEXT}{name}" for name in texts), *_effort(question.arguments)],
        phase="portability",
        hosts=list(question.hosts),
        texts=texts,
    )


def _text(one: Configuration, path: str) -> str:
    return dump_yaml({"schema": SCHEMA, **candidate_spec(one, path)})


def _effort(arguments: list[str]) -> list[str]:
    """Return the effort of a search as options of the comparison."""
    for number, one in enumerate(arguments):
        if one.startswith("--effort="):
            return [one]
        if one == "--effort" and number + 1 < len(arguments):
            return [f"--effort={arguments[number + 1]}"]
    return []
