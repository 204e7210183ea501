"""Variants in the list of configurations: the ways to add them, their names, and their inputs."""

from __future__ import annotations

from typing import Any

import pytest

from core.evidence.comparison import DEFAULT_LABEL, Configuration
from core.spec.steps import Step
from core.store import ModelRecord
from dashboard import configurations, state
from tests.views import sample_results
from tests.views.page import Add, Open, click, lines
from tests.views.test_compare import names

CHOICE = "compare.variants"


@pytest.fixture
def lean(mlp: ModelRecord, add_variant: Add) -> ModelRecord:
    """A real model that is known as a variant of `mlp`."""
    return add_variant(mlp, "lean", steps=[Step("int8_dynamic").to_dict()], hidden=8)


def test_a_model_without_variants_says_where_to_make_some(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("compare", model=mlp)
    assert CHOICE not in [one.key for one in at.multiselect]


def test_a_variant_joins_the_list_and_is_compared_under_its_name(
    open_page: Open, mlp: ModelRecord, lean: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = open_page("compare", model=mlp)
    at.multiselect(key=CHOICE).set_value([lean.content_sha256]).run()
    click(at, "compare.add.variants")
    assert not at.exception
    assert names(at) == [f"{DEFAULT_LABEL} (mlp)", "lean"]
    assert lines(at, "`mlp`", "INT8")
    click(at, "compare.run")
    (asked,) = submitted
    found: list[Configuration] = asked["contestants"]
    assert [(one.label, one.spec.model.sha256) for one in found] == [
        (f"{DEFAULT_LABEL} (mlp)", mlp.sha256),
        ("lean", lean.sha256),
    ]


def test_the_original_is_compared_with_the_chosen_variant(
    open_page: Open, mlp: ModelRecord, lean: ModelRecord
) -> None:
    at = open_page("compare", model=lean)
    at.multiselect(key=CHOICE).set_value([mlp.content_sha256]).run()
    click(at, "compare.add.variants")
    assert names(at) == [f"{DEFAULT_LABEL} (lean)", "mlp"]


def test_nothing_chosen_is_said(open_page: Open, mlp: ModelRecord, lean: ModelRecord) -> None:
    at = open_page("compare", model=mlp)
    click(at, "compare.add.variants")
    assert len(at.error) == 1


def test_trials_of_a_family_come_into_the_list_by_a_link(
    open_page: Open, mlp: ModelRecord, lean: ModelRecord
) -> None:
    fingerprint = state.environment()["fingerprint"]
    trials = [
        sample_results.put_measured(state.store(), one, sample_results.spec_for(one), fingerprint=fingerprint)
        for one in (mlp, lean)
    ]
    at = open_page("compare", model=mlp, trials=",".join(one.id for one in trials))
    assert names(at) == [f"{DEFAULT_LABEL} (mlp)", "lean"]


def test_names_say_the_model_and_what_else_differs() -> None:
    from core.spec import spec_from_dict

    default = spec_from_dict({"model": {"path": "a"}})
    tuned = spec_from_dict({"model": {"path": "b"}, "session": {"intra_op_num_threads": 1}})
    assert configurations.labels([default, default, tuned, default], 0, ["", "lean", "lean", ""]) == [
        DEFAULT_LABEL,
        "lean",
        "lean, threads 1",
        f"{DEFAULT_LABEL} (2)",
    ]
