"""The glossary: every word has a meaning, on every page that uses it."""

import pytest

from core.cli import run
from core.show.glossary import TERMS, meaning
from core.wire.errors import SpecError
from dashboard.widgets import trial_result


def test_a_word_is_found_in_any_case_and_by_each_of_its_names() -> None:
    assert meaning("Round") == TERMS["round"]
    assert meaning("p95") == meaning("P99") == TERMS["p50, p95, p99"]


def test_another_word_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"`launh` is not in the glossary.*`launch`"):
        meaning("launh")


def test_the_words_of_a_result_are_in_it() -> None:
    assert set(trial_result.WORDS) <= set(TERMS)


def test_the_command_prints_one_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["glossary", "A/A"]) == 0
    assert "Two copies of one configuration" in " ".join(capsys.readouterr().out.split())
    assert run(["glossary"]) == 0
    out = capsys.readouterr().out
    assert all(term in out for term in TERMS)
    assert run(["glossary", "sphinx"]) == 2
