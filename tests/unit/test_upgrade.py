"""core.evidence.upgrade: what two runtimes mean for a model, on invented comparisons."""

from __future__ import annotations

from typing import Any

import pytest

from core.cli.upgrade import slower_limit
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.upgrade import (
    Change,
    State,
    UpgradeItem,
    UpgradeRecord,
    UpgradeRow,
    changes,
    headline,
    intervals_text,
    judge,
    rows,
)
from core.evidence.verdict import Verdict
from core.show import documents
from core.show.sheets import Line, Note, upgrades
from core.show.table import column_of
from core.wire.errors import ErrorRecord
from core.wire.output_check import check_outputs
from tests import builders, raw_comparisons

REFUSAL: ErrorRecord = {"type": "SpecError", "message": "It reads IR version 10 at most.", "hint": "Save it."}


def guard(max_rel: float, **how: Any) -> Any:
    """Outputs that differ by a share of the largest."""
    return check_outputs(raw_comparisons.output_error(max_rel=max_rel), "fp32", **how).to_dict()


def trial(name: str, max_rel: float = 0.0, **fields: Any) -> Trial:
    result = {"guard": guard(max_rel), "latency": {"p50_s": 0.002}, "peak_rss_bytes": 8 << 20}
    return builders.trial(name, result=result, **fields)


def compared(ratio: float = 1.0, *, family: int = 1, half_width: float = 0.005, **fields: Any) -> Comparison:
    contrast = builders.contrast(
        ratio, half_width, candidate="new", baseline="old", contradicted=False, outputs_differ=False
    )
    if half_width < 0.02 and 0.98 < ratio < 1.02:
        contrast["verdict"] = "EQUIVALENT"
    result: Any = {"contrasts": [contrast]}
    facts = {"result": result, "protocol": {"family": family}, **fields}
    return builders.comparison({"new": "candidate", "old": "baseline"}, **facts)


def row(
    ratio: float = 1.0, model: str = "m.onnx", item: dict[str, Any] | None = None, **how: Any
) -> UpgradeRow:
    given = UpgradeItem(**{"model": model, "comparison": "c1", "between": guard(0.0), **(item or {})})
    return judge(given, compared(ratio, **how), [trial("old"), trial("new")])


def refused(*names: str, state: str = "COMPLETE") -> UpgradeRow:
    trials = [
        trial(one, state="FAIL", error={**REFUSAL, "message": f"{one}: {REFUSAL['message']}"})
        if one in names
        else trial(one)
        for one in ("old", "new")
    ]
    comparison = builders.comparison({"new": "candidate", "old": "baseline"}, state=state)
    return judge(UpgradeItem(model="m.onnx", comparison="c1"), comparison, trials)


# --- one model


def test_the_ratio_is_of_the_new_runtime_against_the_old_one() -> None:
    found = row(0.8)
    assert (found.state, found.verdict, found.outputs_differ) == (State.COMPARED, Verdict.SLOWER, False)
    assert found.before is not None
    assert found.after is not None
    assert (found.before.id, found.after.id, found.fails) == ("old", "new", False)


@pytest.mark.parametrize(
    ("failed", "of_comparison", "state", "fails"),
    [
        (["new"], "FAIL", State.REFUSED, True),
        (["old"], "COMPLETE", State.ONLY_NEW, False),
        (["old", "new"], "FAIL", State.FAILED, True),
        (["new"], "CANCELLED", State.REFUSED, True),
        ([], "CANCELLED", State.CANCELLED, False),
    ],
)
def test_a_model_that_a_runtime_refuses_is_a_result(
    failed: list[str], of_comparison: str, state: State, *, fails: bool
) -> None:
    found = refused(*failed, state=of_comparison)
    assert (found.state, found.fails, found.error is not None) == (state, fails, bool(failed))
    assert found.error is None or found.error["message"].startswith(failed[-1])
    assert found.outputs_differ is None


@pytest.mark.parametrize("kind", ["BudgetError", "SpecError"])
def test_a_request_that_neither_runtime_can_run_says_nothing_about_them(kind: str) -> None:
    short: ErrorRecord = {**REFUSAL, "type": kind}
    trials = [trial(one, state="FAIL", error=short) for one in ("old", "new")]
    comparison = builders.comparison({"new": "candidate", "old": "baseline"}, state="FAIL", error=short)
    found = judge(UpgradeItem(model="m", comparison="c1"), comparison, trials)
    assert (found.state, found.fails, found.error) == (State.UNUSABLE, True, short)


def test_a_model_without_a_comparison_has_its_error_or_is_not_measured() -> None:
    assert judge(UpgradeItem(model="m", error=REFUSAL), None).state == State.UNUSABLE
    assert (
        judge(UpgradeItem(model="m", error={**REFUSAL, "type": "Cancelled"}), None).state == State.CANCELLED
    )
    assert judge(UpgradeItem(model="m"), None).state == State.NOT_MEASURED


# --- outputs


def differ(between: float | None, old: float = 0.0, new: float = 0.0, **how: Any) -> tuple[Any, str]:
    checked = None if between is None else guard(between, **how)
    item = UpgradeItem(model="m", comparison="c1", between=checked, between_reason="too large")
    found = judge(item, compared(), [trial("old", old), trial("new", new)])
    return found.outputs_differ, found.outputs_reason


def test_outputs_differ_between_the_runtimes_or_of_the_new_one_from_the_original() -> None:
    assert differ(0.0)[0] is False
    assert differ(0.5) == (True, f"the new runtime against the old one: {guard(0.5)['why']}")
    assert differ(0.0, new=0.5)[0] is True
    assert differ(None, new=0.5)[0] is True


def test_outputs_that_are_off_in_both_runtimes_are_not_due_to_the_upgrade() -> None:
    assert differ(0.0, old=0.5, new=0.5)[0] is False
    assert "both differ from the original" in differ(0.0, old=0.5, new=0.5)[1]
    assert differ(0.5, old=0.5, new=0.5)[0] is True


def test_outputs_that_cannot_be_compared_are_said_to_be_unknown() -> None:
    assert differ(None)[0] is False  # both are within the tolerance of the original
    assert "too large" in differ(None)[1]
    judged, why = differ(0.5, random=("RandomNormal",))
    assert judged is False
    assert "RandomNormal" in why
    random = UpgradeItem(model="m", comparison="c1", between=guard(0.5, random=("RandomNormal",)))
    unknown = [builders.trial("old", result={}), builders.trial("new", result={})]
    found = judge(random, compared(), unknown)
    assert (found.outputs_differ, found.fails) == (None, False)
    assert "RandomNormal" in found.outputs_reason


# --- a folder


def asked(*models: str) -> UpgradeRecord:
    return UpgradeRecord(
        version=1,
        id="a" * 16,
        created_at=0.0,
        config="",
        names=("old", "new"),
        models=models,
        family=len(models),
    )


def test_every_model_that_was_asked_for_has_a_row_in_order() -> None:
    record = asked("a", "b", "c")
    found = rows(record, [row(model="b")])
    assert [(one.item.model, one.state) for one in found] == [
        ("a", State.NOT_MEASURED),
        ("b", State.COMPARED),
        ("c", State.NOT_MEASURED),
    ]


def test_the_headline_counts_verdicts_failures_and_outputs() -> None:
    found = [row(0.8), row(0.9), row(1.2), row(1.0), refused("new", state="FAIL")]
    assert headline(found) == (
        "5 models: 2 slower, 1 faster, 1 without a difference, 1 fails in the new runtime."
    )
    broken = row(1.2, item={"between": guard(0.5)})
    assert headline([broken]) == "1 model: 1 faster; outputs differ in 1."


def test_the_intervals_say_whether_they_hold_together() -> None:
    assert "hold together with 95 %" in intervals_text([row(family=2), row(family=2)])
    alone = intervals_text([row(family=1)] * 40)
    assert "alone" in alone
    assert "about 2 would" in alone
    assert intervals_text([refused("new", state="FAIL")]) == ""


def test_the_gate_names_models_beyond_it_and_those_that_may_be() -> None:
    found = [
        row(0.8, "slow"),
        row(0.99, "fine"),
        row(0.96, "open", half_width=0.05),
        refused("new", state="FAIL"),
    ]
    gate = slower_limit(found, 0.05)
    assert (gate.passed, gate.broken, gate.open) == (False, ["slow"], ["open"])
    assert slower_limit(found[1:2], 0.05).passed


def test_the_sheet_shows_every_model_and_what_is_wrong_with_it() -> None:
    record = asked("x", "m.onnx")
    found = [row(0.8, "x"), refused("new", state="FAIL")]
    table = upgrades.models(found)
    assert column_of(table, "result") == ["1.250× slower", "fails in the new runtime"]
    assert [*table.colors] == ["orange", "red"]
    parts = upgrades.upgrade(record, found).parts
    assert any(isinstance(one, Line) and one.text.startswith("Explain: ortune explain new") for one in parts)
    notes = [part.text for part in parts if isinstance(part, Note)]
    assert any("It reads IR version 10 at most. Save it." in text for text in notes)
    assert upgrades.overall_color(found) == "red"
    assert upgrades.overall_color([row(1.2)]) == "green"
    assert documents.upgrade(record, found)["models"][1]["state"] == "REFUSED"


# --- two versions


def capabilities(**changed: Any) -> Any:
    return {
        "version": "1.26.0",
        "searched": 3,
        "unknown": [],
        "numpy": "2",
        "python": "3.12",
        "build": "",
        "ir_version": 11,
        "opsets": {"": 23},
        "interfaces": ["a"],
        "modules": [],
        "defaults": {"inter_op_num_threads": "0"},
        "providers": [{"name": "CPUExecutionProvider", "loadable": True, "reason": "", "remedy": ""}],
        **changed,
    }


def test_settings_defaults_providers_and_formats_that_differ_are_listed() -> None:
    lost = {"name": "XnnpackExecutionProvider", "loadable": False, "reason": "no library", "remedy": ""}
    before = capabilities(unknown=["session.new"], providers=[*capabilities()["providers"], lost])
    after = capabilities(
        unknown=["session.old"],
        ir_version=12,
        opsets={"": 24, "ai.onnx.ml": 5},
        interfaces=[],
        defaults={"inter_op_num_threads": "1", "added": "on"},
    )
    assert changes(before, after) == [
        Change(kind="setting", name="session.new", before="not known", after="known"),
        Change(kind="setting", name="session.old", before="known", after="not known"),
        Change(kind="default", name="inter_op_num_threads", before="0", after="1"),
        Change(
            kind="provider",
            name="XnnpackExecutionProvider",
            before="does not load",
            after="not in this build",
        ),
        Change(kind="opset", name="ai.onnx", before="23", after="24"),
        Change(kind="function", name="a", before="known", after="not known"),
        Change(kind="model format", name="IR version", before="11", after="12"),
    ]
    assert changes(before, before) == []
