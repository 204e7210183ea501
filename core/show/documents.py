"""The JSON of stored results, as `--json` prints it; `core.show.output_types` describes it.

Each function reads what is stored and measures nothing. A trial and a comparison are documents by
themselves (`Trial.to_dict`, `Comparison.to_dict`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.comparison import Comparison
from core.evidence.fleet.fleet_types import FleetRun, HostRecord
from core.evidence.fleet.summary import Section, Summary
from core.evidence.graph_changes import changes
from core.evidence.graph_facts import GraphRow, ProfileMatch
from core.evidence.load.loadgen_result import LoadGenResult
from core.evidence.measurement import Trial
from core.evidence.node_savings import Choice, halving_choice
from core.evidence.noise_check import evaluate
from core.evidence.profile_difference import Difference
from core.evidence.profile_sentence import sentence
from core.evidence.roofline import peaks_of
from core.evidence.upgrade import UpgradeRecord, UpgradeRow, intervals_text
from core.evidence.upgrade import headline as upgrade_headline
from core.process.machine_queue import Entry
from core.run.accuracy import summary
from core.run.best_point import SweepRanking
from core.run.explanation import Pair
from core.run.known_trials import Known
from core.run.node_errors import Located
from core.run.scorecard import ScorecardRow
from core.run.search import Prepared
from core.run.search.answer import space_facts
from core.run.search.stored import answer_of, trials_of
from core.run.sizes import Size
from core.run.sweep import Measured, Point, join
from core.run.variants import creation_check, precision_of_model, variant_of
from core.show import fleet_text
from core.show.output_types import Limit, MachineDocument, QueuedJobDocument
from core.show.report import Report
from core.show.report.signed import SignatureSection
from core.show.sheets import sweeps
from core.show.sheets.variants import Verdicts
from core.show.verdict import continuable_comparison
from core.spec.space import Axis
from core.store import Accuracy, ModelRecord, Store, StudyRecord, Tags, Visibility
from core.store.imported import Imported
from core.wire.errors import ErrorRecord
from core.wire.graph import Graphs, Level
from core.wire.plain_data import plain

COMPLETE = {"state": "COMPLETE", "error": None}  # of a result that is no trial


# --- trials, comparisons and sweeps -------------------------------------------------------------------------


def comparison(store: Store, of: Comparison, limit: Limit | None = None) -> dict[str, Any]:
    """Return a comparison with its trials and their raw measurements."""
    return {
        **of.to_dict(),
        "fail_if_slower": limit,
        "trials": [store.trial(one.trial).to_dict() for one in of.contestants],
    }


def sweep(
    store: Store,
    study: str,
    axes: Sequence[Axis],
    points: Sequence[Point],
    known: Known,
    ranking: SweepRanking,
) -> dict[str, Any]:
    """Return a sweep with its points; those that were measured now have their raw measurements."""
    rows = join(points, known)
    measured = next((one.comparison for one in known.values() if not one.reused), None)
    return {
        "study": study,
        "axes": {one.name: list(one.values) for one in axes},
        "comparison": measured.to_dict() if measured is not None else None,
        "line_s": ranking.line_s,
        "percentile": ranking.percentile,
        "best": None if ranking.best is None else dict(ranking.best.values),
        "verdict": sweeps.sentence(rows, ranking),
        "points": [
            _point(store, point, row, known, ranking) for point, row in zip(points, rows, strict=True)
        ],
    }


def _point(store: Store, point: Point, row: Measured, known: Known, ranking: SweepRanking) -> dict[str, Any]:
    found = known.get(point.measured_spec.key()) if point.measured_spec is not None else None
    trial: dict[str, Any] = {"state": row.state}
    if found is not None:
        trial = (found.trial if found.reused else store.trial(found.trial.id)).to_dict()
    return {
        "values": dict(point.values),
        "reused": row.reused,
        "place": ranking.place(row),
        "over_line": ranking.is_in(row, ranking.over),
        "front": ranking.is_in(row, ranking.front),
        "same_as": None if point.same is None else dict(point.same),
        "why": point.why or point.refused,
        **trial,
    }


def history(
    store: Store,
    trials: Sequence[Trial],
    tags: Mapping[str, Tags],
    visibility: Mapping[str, Visibility],
) -> dict[str, Any]:
    """Return listed trials with their tags."""
    return {
        "trials": [trial.to_dict() for trial in trials],
        "marks": {name: own.to_dict() for name, own in tags.items()},
        "visibility": {name: one.to_dict() for name, one in visibility.items()},
        "rescued": [str(path) for path in store.rescued()],
    }


def imported(store: Store, one: Imported) -> dict[str, Any]:
    """Return the content of an imported file."""
    data = store.shelf.data(one.id)
    return {
        "imported": True,
        "id": one.id,
        "kind": one.kind,
        "file": one.name,
        "format": one.format,
        "sha256": one.sha256,
        "created_at": one.created_at,
        "profile": data if one.kind == "profile" else None,
        "summary": data if one.kind == "summary" else None,
    }


def report(
    said: Report, signature: SignatureSection, *, format_: str, output: Path | None, text: str
) -> dict[str, Any]:
    """Return what a report says, who signed its result, and where it was written."""
    return {
        "kind": said.kind,
        "id": said.id,
        "verdict": said.verdict,
        "rejected": said.rejected or None,
        "signatures": signature.signatures,
        "digests": signature.digests,
        "format": format_,
        "output": str(output) if output is not None else None,
        "output_bytes": output.stat().st_size if output is not None else None,
        "text": text or None,
    }


# --- explanations and graphs --------------------------------------------------------------------------------


def explanation(
    store: Store, of: Pair, found: Difference | None, error: ErrorRecord | None = None
) -> dict[str, Any]:
    """Return where a difference comes from; without `found`, why that is unknown."""
    names = {"baseline": of.baseline.id, "candidate": of.candidate.id}
    if found is None:
        return {**names, "state": "FAIL", "error": error}
    said = {"sentence": sentence(found), "measure_longer": longer_comparison(store, of, found) or None}
    return {**names, **COMPLETE, **said, **found.to_dict()}


def longer_comparison(store: Store, of: Pair, found: Difference) -> str:
    """Return the comparison to measure longer; empty: impossible, or the verdict is decided."""
    return "" if found.end.decided else continuable_comparison(store, of)


def graph(
    record: ModelRecord,
    found: Graphs,
    shown: Sequence[GraphRow],
    *,
    count: int,
    optimized: bool,
    profile: str | None,
    ran: ProfileMatch | None,
) -> dict[str, Any]:
    """Return the shown nodes of a graph that has `count` nodes; `ran` are their times in `profile`."""
    side = found.optimized if optimized else found.model
    assert side is not None, record.name
    return {
        **COMPLETE,
        "model": record.name,
        "content_sha256": record.content_sha256,
        "optimized": optimized,
        "nodes": [_node(one) for one in shown],
        "profile": profile,
        "unmatched_s": None if ran is None else ran.unmatched_s,
        "effective_providers": list(found.effective_providers),
        "changes": changes(found.model, side) if optimized else [],
        "count": count,
        "notes": [*found.notes, *side.notes],
    }


def _node(row: GraphRow) -> Mapping[str, Any]:
    node, ran = row.node, row.ran
    return {
        "name": node.name,
        "op_type": node.op_type,
        "path": list(row.level.path),
        "role": row.level.role,
        "scope": list(node.scope),
        "precision": row.precision,
        "inputs": _tensors(row.level, node.inputs),
        "outputs": _tensors(row.level, node.outputs),
        "weight_bytes": row.weight_bytes,
        "attributes": dict(node.attributes),
        "does": list(node.does),
        "inserted": node.inserted,
        "self_s": None if ran is None else ran.self_s,
        "with_others": None if ran is None else ran.with_others,
        "providers": [] if ran is None else list(ran.providers),
        "error": None if row.unit is None else row.unit.error,
    }


def _tensors(level: Level, names: Sequence[str]) -> list[dict[str, Any]]:
    found = [level.by_name[name] for name in names if name in level.by_name]
    return [
        {"name": one.name, "dtype": one.dtype, "shape": None if one.shape is None else list(one.shape)}
        for one in found
    ]


# --- accuracy and targets -----------------------------------------------------------------------------------


def accuracies(
    found: Sequence[Accuracy], compared: Sequence[Mapping[str, Any]], errors: Sequence[ErrorRecord]
) -> dict[str, Any]:
    """Return accuracies with their metrics, comparisons of them, and the errors of the others."""
    return {
        "accuracies": [{**one.to_dict(), "summary": summary(one)} for one in found],
        "comparisons": list(compared),
        "errors": list(errors),
    }


def scorecard(row: ScorecardRow, errors: Sequence[ErrorRecord] = ()) -> dict[str, Any]:
    """Return the scorecard of a configuration."""
    subject = row.subject
    return {
        "state": row.state,
        "model": {"name": subject.record.name, "sha256": subject.record.sha256},
        "spec": subject.spec.to_dict(),
        "targets": [one.to_dict() for one in row.judged],
        "trials": row.trials,
        "breach": row.breach or None,
        "calibration_note": row.calibration or None,
        "error": errors[0] if errors else None,
    }


def upgrade(record: UpgradeRecord, found: Sequence[UpgradeRow]) -> dict[str, Any]:
    """Return an upgrade: both runtimes, every model, and what the versions have or lack."""
    return {
        "upgrade": record.id,
        "state": record.state,
        "error": record.error,
        "study": record.study,
        "created_at": record.created_at,
        "config": record.config or None,
        "old": record.before,
        "new": record.after,
        "family": record.family,
        "headline": upgrade_headline(found),
        "intervals": intervals_text(found),
        "models": [_upgraded(row) for row in found],
        "changes": list(record.changes),
        "changes_reason": record.changes_reason or None,
        "fingerprint": record.fingerprint,
    }


def _upgraded(row: UpgradeRow) -> dict[str, Any]:
    def side(trial: Trial | None) -> dict[str, Any] | None:
        if trial is None:
            return None
        facts = trial.facts
        numbers = {name: facts.get(name) for name in ("peak_rss_bytes", "session_creation_s", "first_run_s")}
        return {
            "trial": trial.id,
            "state": trial.state,
            "error": trial.error,
            "p50_s": trial.p50_s,
            **numbers,
        }

    return {
        "model": row.item.model,
        "state": row.state,
        "comparison": row.item.comparison or None,
        "reused": row.item.reused,
        "verdict": row.verdict,
        "contrast": row.contrast,
        "simultaneous": row.simultaneous,
        "outputs_differ": row.outputs_differ,
        "outputs_reason": row.outputs_reason or None,
        "between": row.item.between,
        "old": side(row.before),
        "new": side(row.after),
        "error": row.error,
        "notes": list(row.item.notes),
    }


# --- models and variants ------------------------------------------------------------------------------------


def model(
    record: ModelRecord, *, loads: str | None, not_fed: str, suggested: str, sizes: Mapping[str, Size]
) -> dict[str, Any]:
    """Return the facts of a model, with suggested sizes of its free dimensions."""
    return {
        **record.info,
        "loads": loads,
        "not_fed": not_fed or None,
        "suggested": suggested,
        "suggested_from": {dim: one.source for dim, one in sizes.items()},
    }


def transformed(
    records: Sequence[ModelRecord], *, reused: int, written: Sequence[str] | None, notes: Sequence[str]
) -> dict[str, Any]:
    """Return a chain of steps, one record per step."""
    last = records[-1]
    return {
        **COMPLETE,
        "model": last.name,
        "content_sha256": last.content_sha256,
        "path": last.path,
        "written": written,
        "reused": reused,
        "steps": [
            {
                "model": one.name,
                "content_sha256": one.content_sha256,
                "path": one.path,
                "variant": variant_of(one),
                "guard": None if (verdict := creation_check(one)) is None else verdict.to_dict(),
            }
            for one in records
        ],
        "notes": notes,
    }


def variants(families: Sequence[tuple[Sequence[ModelRecord], Verdicts]]) -> dict[str, Any]:
    """Return families of models with the verdicts on them."""
    return {
        "variants": [
            {
                "model": one.name,
                "content_sha256": one.content_sha256,
                "path": one.path,
                "precision": precision_of_model(one),
                "variant": variant_of(one),
                "against_original": known.get(one.content_sha256),
            }
            for members, known in families
            for one in members
        ]
    }


def node_errors(name: str, found: Located, curve: Sequence[Choice]) -> dict[str, Any]:
    """Return the error and the saved time of each quantized operator of a variant."""
    return {
        **COMPLETE,
        "variant": name,
        **plain(found.savings),
        "curve": curve,
        "halving": list(curve[halving_choice(curve)].blocked),
        "fed": found.fed,
        "notes": list(found.notes),
        **({"libraries": dict(found.libraries)} if found.libraries else {}),
    }


def loadgen(found: LoadGenResult) -> dict[str, Any]:
    """Return a cross-check with LoadGen."""
    return {**COMPLETE, **found}


# --- fleets -------------------------------------------------------------------------------------------------


def fleet(found: Summary) -> dict[str, Any]:
    """Return a fleet run with the answers to its questions."""
    run = found.run
    return {
        "run": run.id,
        "name": run.name,
        "state": run.state,
        "phase": run.phase,
        "owner": run.owner,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "hosts": [{"record": one, "kind": one.kind} for one in run.hosts],
        "questions": [_fleet_answers(one, run) for one in found.sections],
    }


def fleet_hosts(hosts: Sequence[HostRecord]) -> dict[str, Any]:
    """Return the hosts of a fleet."""
    return {"hosts": [{"record": one, "kind": one.kind} for one in hosts]}


def fleet_runs(runs: Sequence[FleetRun]) -> dict[str, Any]:
    """Return a list of fleet runs."""
    return {
        "runs": [
            {
                "run": one.id,
                "name": one.name,
                "state": one.state,
                "created_at": one.created_at,
                "finished_at": one.finished_at,
                "owner": one.owner,
                "hosts": [host.name for host in one.hosts],
                "questions": len(one.questions),
            }
            for one in runs
        ]
    }


def _fleet_answers(section: Section, run: FleetRun) -> dict[str, Any]:
    of = section.matrix
    question = next(one for one in run.questions if one.number == of.question)
    return {
        "question": of.question,
        "command": question.command,
        "phase": of.phase,
        "model": {"name": of.model, "sha256": of.model_sha256},
        "arguments": question.arguments,
        "answer": fleet_text.answer(section)[0],
        "metric": of.metric,
        "names": fleet_text.names(of.configurations, of.model),
        "configurations": of.configurations,
        "hosts": of.rows,
        "portability": section.portability,
        "spreads": section.spreads,
        "disagreements": section.disagreements,
        "costs": section.costs,
        "answers": list(run.answers_of(of.question).values()),
    }


# --- searches and the machine -------------------------------------------------------------------------------


def search(record: StudyRecord) -> dict[str, Any]:
    """Return a search with its answer and all configurations that it evaluated."""
    answer: Any = answer_of(record)
    return {
        "study": record.id,
        "state": record.state,
        "model": record.model_name,
        "error": record.error,
        "question": record.question,
        "spec": record.spec,
        **(answer or {}),
        "trials": trials_of(record),
    }


def search_space(prepared: Prepared) -> dict[str, Any]:
    """Return what a search would try."""
    space = prepared.space
    return {
        "objective": dict(prepared.question.objective),
        "limits": prepared.question.limit_words,
        "space": space_facts(space),
        "axes": {axis.name: list(axis.values) for axis in space.axes},
    }


def noise_check(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return an A/A test and whether it passes."""
    return {**COMPLETE, **result, "answer": evaluate(result)}


def peaks(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return measured peak rates with the raw times."""
    return {**COMPLETE, **reply, "peaks": peaks_of(reply)}


def machine(facts: wire.Environment, queue: Sequence[Entry]) -> MachineDocument:
    """Return facts of this machine and its queue; of a private job only its place and times."""
    jobs: list[QueuedJobDocument] = [
        {
            "running": one.running,
            "place": one.place,
            "what": one.what,
            "private": one.private,
            "person": None if one.private else one.person or None,
            "owner": None if one.private else one.owner,
            "since": one.since,
            "starts_in_s": one.starts_in_s,
        }
        for one in queue
    ]
    return {**facts, "queue": jobs}
