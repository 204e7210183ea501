"""The Load page on stored load tests, and what its form asks."""

from __future__ import annotations

import pytest

from core.store import ModelRecord
from dashboard import state
from tests.simulated_load import sample_load_result
from tests.views import sample_results
from tests.views.page import Open, icons, texts


def test_without_a_load_test_the_page_says_what_to_do(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("load", model=mlp)
    assert "traffic" in icons(at)
    assert len(at.get("plotly_chart")) == 0
    assert not at.button(key="load.run").disabled


@pytest.mark.parametrize("question", ["traffic", "limit", "batching", "together"])
def test_each(open_page: Open, mlp: ModelRecord, question: str) -> None:
    sample_results.put_load(state.store(), mlp, sample_load_result(question))
    at = open_page("load", model=mlp)
    print(texts(at))
    assert len(at.get("plotly_chart")) == 1
