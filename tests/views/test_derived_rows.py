"""What a page run does not read or compute again, and when it does: after a change, a deletion, a pruning."""

from __future__ import annotations

import time
from typing import Any

import pytest

from core.store import ModelRecord
from dashboard import derived_rows, session_jobs, state
from dashboard.charts import latency_charts, timeline_charts
from dashboard.widgets import latency_plots, results
from tests import tiny_models
from tests.views import sample_results
from tests.views.page import Open


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Count the calls of a function."""
    calls: list[Any] = []
    original = getattr(owner, name)

    def count(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, count)
    return calls


def test_a_row_is_read_once_until_it_changes_or_is_deleted(mlp: ModelRecord) -> None:
    store = state.store()
    first, second = (
        sample_results.put_run(store, mlp, fingerprint="f", created_at=2e9 + number).id for number in (1, 0)
    )
    read: list[str] = []

    def label(trial: Any) -> str:
        read.append(trial.id)
        return results.trial_label(trial)

    def labels() -> dict[str, str]:
        read.clear()
        return derived_rows.of_trials(state.measured_by(mlp), "test", label, limit=50)

    expected = {one.id: results.trial_label(one) for one in state.measured(mlp)}
    assert list(labels().items()) == list(expected.items())
    assert read == [first, second]
    assert labels() == expected
    assert read == []
    store.update_trial(second, model_name="renamed")
    labels()
    assert read == [second]
    store.delete_trials([first])
    assert list(labels()) == [second]
    assert read == []


def test_a_timeline_is_computed_once_until_its_measurements_are_pruned(
    mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, timeline_charts, "timeline_info")
    compared = sample_results.put_compared(state.store(), mlp, fingerprint="f")

    def timeline() -> timeline_charts.Timeline:
        trials = [state.store().trial(one.id) for one in (compared.trial, compared.baseline)]
        return latency_plots.timeline_of({one.id: latency_charts.side(one) for one in trials})

    found = timeline()
    assert timeline() == found
    assert len(calls) == 1
    state.store().prune(before=time.time())
    assert not timeline().sides
    assert len(calls) == 2


def test_past_comparisons_are_read_again_when_one_is_added_or_deleted(
    mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, session_jobs, "past")
    fingerprint = state.environment()["fingerprint"]

    def known() -> bool:
        return session_jobs.past_comparisons(mlp.content_sha256) is not None

    assert not known()
    first, second = (
        sample_results.put_compared(state.store(), mlp, fingerprint=fingerprint) for _ in range(2)
    )
    assert [known(), known()] == [True, True]
    assert len(calls) == 2
    state.store().delete_trials([first.trial.id])  # the newest one stays
    assert known()
    assert len(calls) == 3
    state.store().delete_trials([second.trial.id])
    assert not known()


def test_sizes_are_proposed_only_where_the_session_has_none(
    open_page: Open, add_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page(model=add_model(tiny_models.tokens))
    assert not page.exception
    calls = counted(monkeypatch, state, "default_sizes")
    page.run()
    assert len(calls) <= 2  # for the words on proposed sizes; `values` needs none
