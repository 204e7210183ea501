"""Searches as studies of Optuna, with the real package."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from core.evidence.evaluations import Evaluation, Observation
from core.evidence.statistics import t_quantile
from core.run.search import optuna_export
from core.run.search.optuna_export import ITSELF, export, study_name
from core.spec.space import Axis
from core.store import StudyRecord
from core.wire.errors import SpecError
from tests import builders

optuna = pytest.importorskip("optuna")

AXES = (
    Axis(name="intra_op_num_threads", values=(0, 1, 2)),
    Axis(name="providers", values=(("CPUExecutionProvider",), ("XnnpackExecutionProvider",))),
)


def look(gain: float, spread: float | None = 0.01, **changes: Any) -> Observation:
    facts: dict[str, Any] = {
        "stage": "screen",
        "race": "r1",
        "trial": "t1",
        "gains": {"latency_p50": (math.log(gain), spread)},
        "values": {"latency_p50": 1e-3 / gain},
    }
    return Observation(**(facts | changes))


WINNER = {
    "changes": {"intra_op_num_threads": 1},
    "trial": "t9",
    "gain": {"metric": "latency_p50", "ratio": 1.2, "ratio_low": 1.1, "ratio_high": 1.3, "verdict": "FASTER"},
}


def record(*tried: Evaluation, **changes: Any) -> StudyRecord:
    facts: dict[str, Any] = {
        "id": "0123456789abcdef",
        "state": "COMPLETE",
        "question": {"limits": [{"metric": "peak_rss", "at_most": "100 MiB"}]},
        "spec": builders.spec().to_dict(),
        "model_name": "cnn",
        "model_sha256": builders.SHA,
        "created_at": 0.0,
        "tried": [one.to_dict() for one in tried],
        "answer": {"outcome": "FOUND", "winner": WINNER},
    }
    return StudyRecord(**(facts | changes))


ONE = Evaluation(
    changes={"intra_op_num_threads": 1},
    key="a",
    looks=(look(1.2), look(1.2, stage="heat", trial="t2", launches=6, df=5.0, splits=7.0)),
)
XNN = Evaluation(changes={"providers": ["XnnpackExecutionProvider"]}, key="b", looks=(look(0.8, None),))
BAD = Evaluation(
    changes={"intra_op_num_threads": 2}, key="c", looks=(look(1, gains={}, error="It crashed."),)
)
WRONG = Evaluation(
    changes={"enable_mem_pattern": False}, key="d", looks=(look(2.0, breach="The outputs differ."),)
)
CONTROL_EVALUATION = Evaluation(changes={"intra_op_num_threads": 1}, key="a", looks=(look(1.19),), twin=True)
UNSEEN = Evaluation(changes={"enable_cpu_mem_arena": False}, key="e")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'studies.db'}"


def opened(url: str) -> Any:
    """What Optuna itself reads."""
    return optuna.load_study(study_name=study_name(record()), storage=url)


# --- the export -----------------------------------------------------------------------------------------


def test_optuna_reads_every_configuration_with_its_value_and_state(url: str) -> None:
    written = export(record(ONE, XNN, BAD, WRONG, CONTROL_EVALUATION, UNSEEN), url)
    study = opened(url)
    one, xnn, bad, wrong = study.trials
    assert written == 4
    assert study.direction.name == "MAXIMIZE"
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL", "FAIL"]
    assert one.value == pytest.approx(1.2)
    assert xnn.value == pytest.approx(0.8)
    assert one.params == {
        "intra_op_num_threads": 1,
        "providers": "CPUExecutionProvider",
        "enable_mem_pattern": True,
        "enable_cpu_mem_arena": True,
    }
    assert xnn.params["providers"] == "XnnpackExecutionProvider"
    assert bad.params["intra_op_num_threads"] == 2
    assert (bad.user_attrs["error"], wrong.user_attrs["error"]) == ("It crashed.", "The outputs differ.")
    assert study.best_trial.number == one.number


def test_a_trial_says_what_its_number_rests_on(url: str) -> None:
    export(record(ONE, XNN), url)
    one, xnn = opened(url).trials
    low, high = one.user_attrs["interval"]
    reach = 0.01 * t_quantile(1 - 0.05 / 7 / 2, 5.0)  # of its elimination round, for seven interim analyses
    assert (low, high) == pytest.approx((1.2 * math.exp(-reach), 1.2 * math.exp(reach)))
    assert (one.user_attrs["launches"], xnn.user_attrs["launches"]) == (6, 1)
    assert one.user_attrs["stages"] == ["screen", "heat"]
    assert one.user_attrs["trial"] == "t2"
    assert one.user_attrs["values"] == {"latency_p50": pytest.approx(1e-3 / 1.2)}
    assert xnn.user_attrs["interval"] is None


def test_a_study_says_what_was_asked_and_answered(url: str) -> None:
    export(record(ONE), url)
    told = opened(url).user_attrs
    assert (told["model"], told["outcome"]) == ("cnn", "FOUND")
    assert told["objective"] == {"latency_p50": 1.0}
    assert told["limits"] == ["peak memory added by the session ≤ 100 MiB"]
    assert told["winner"] == {"intra_op_num_threads": 1}


def test_a_search_that_starts_elsewhere_is_told_against_the_default(url: str) -> None:
    """As everywhere: the answer and every trial are all that differs from the default, not from the start."""
    start = builders.spec(session={"intra_op_num_threads": 1}, workload={"use_io_binding": True})
    unbound = Evaluation(changes={"use_io_binding": False}, key="u", looks=(look(1.2),))
    itself = Evaluation(changes={}, key="s", looks=(look(1.1),))
    answer = {"outcome": "FOUND", "winner": {**WINNER, "changes": {"use_io_binding": False}}}
    axes = [Axis(name="use_io_binding", values=(True, False))]
    export(record(itself, unbound, spec=start.to_dict(), answer=answer), url, axes=axes)
    study = opened(url)
    assert study.user_attrs["winner"] == {"intra_op_num_threads": 1}
    assert [one.params for one in study.trials] == [
        {"use_io_binding": True, "intra_op_num_threads": 1},
        {"use_io_binding": False, "intra_op_num_threads": 1},
    ]
    assert study.trials[0].distributions["use_io_binding"].choices == (False, True)
    assert study.trials[0].distributions["intra_op_num_threads"].choices == (0, 1)


def test_parameters_have_the_values_of_the_axes_and_those_of_the_trials(url: str) -> None:
    export(record(ONE, WRONG), url, axes=AXES)
    kinds = opened(url).trials[0].distributions
    assert kinds["intra_op_num_threads"].choices == (0, 1, 2)
    assert kinds["providers"].choices == ("CPUExecutionProvider", "XnnpackExecutionProvider")
    assert kinds["enable_mem_pattern"].choices == (True, False)


def test_the_models_variants_are_a_parameter(url: str) -> None:
    int8 = Evaluation(changes={"model": "int8"}, key="v", looks=(look(1.5),))
    export(record(ONE, int8), url)
    assert [trial.params["model"] for trial in opened(url).trials] == [ITSELF, "int8"]


def test_an_option_of_a_provider_is_a_parameter(url: str) -> None:
    option = "CUDAExecutionProvider.use_tf32"
    start = builders.spec(session={"providers": [{"name": "CUDAExecutionProvider"}]})
    tried = Evaluation(changes={option: "0"}, key="o", looks=(look(1.1),))
    export(record(ONE, tried, spec=start.to_dict()), url)
    assert [trial.params[option] for trial in opened(url).trials] == [None, "0"]


def test_a_search_of_cpu_time_has_its_own_value(url: str) -> None:
    cheap = Evaluation(
        changes={"intra_op_num_threads": 1}, key="a", looks=(look(1, gains={"cpu_s": (0.5, 0.1)}),)
    )
    export(record(cheap, XNN, question={"objective": {"cpu_s": 1.0}}), url)
    first, second = opened(url).trials
    assert first.value == pytest.approx(math.exp(0.5))
    assert second.state.name == "FAIL"
    assert "objective" in second.user_attrs["error"]


def test_a_search_without_an_answer_is_written_too(url: str) -> None:
    assert export(record(answer=None, state="CANCELLED"), url) == 0
    assert opened(url).user_attrs["outcome"] == "CANCELLED"


def test_two_searches_share_a_file(url: str) -> None:
    export(record(ONE), url)
    export(record(XNN, id="f" * 16), url)
    assert len(optuna.get_all_study_names(url)) == 2


def test_what_is_exported_says_nothing_on_the_terminal(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    export(record(ONE), url)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


# --- what is refused ------------------------------------------------------------------------------------


def test_the_same_search_twice_is_refused(url: str) -> None:
    export(record(ONE), url)
    with pytest.raises(SpecError, match="already") as caught:
        export(record(ONE, XNN), url)
    assert caught.value.hint
    assert len(opened(url).trials) == 1


@pytest.mark.parametrize(
    "bad",
    [
        "study.db",
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://u@h/d",
        "sqlite+nodriver:///a.db",
        "a:b:c",
    ],
)
def test_what_is_no_sqlite_file_is_refused(bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        export(record(ONE), bad)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="none"):
        export(record(ONE), f"sqlite:///{tmp_path}/none/s.db")
    with pytest.raises(SpecError):
        export(record(ONE), f"sqlite:///{tmp_path}")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    import sqlite3

    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be taken for one: " * 50)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("create table studies (id text)")
    connection.close()
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(SpecError):
            export(record(ONE), f"sqlite:///{path}")
        assert path.read_bytes() == before


def test_a_storage_of_another_optuna_is_refused(url: str, tmp_path: Path) -> None:
    import sqlite3

    export(record(ONE), url)
    with sqlite3.connect(tmp_path / "studies.db") as connection:
        connection.execute("update alembic_version set version_num = 'v99.0.0'")
    connection.close()
    with pytest.raises(SpecError):
        export(record(XNN, id="f" * 16), url)


def test_without_optuna_the_extra_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name))
    with pytest.raises(SpecError) as caught:
        export(record(ONE), url)
    assert "[optuna]" in caught.value.hint


def test_optuna_is_loaded_only_where_it_is_needed() -> None:
    import subprocess

    code = f"import {optuna_export.__name__}, core.run.search, sys; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
