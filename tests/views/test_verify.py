"""Export's bundle and its tab Verify: made, uploaded, verified, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.evidence.measurement import Trial
from core.process.job_worker import run_job
from core.run.baseline import record_baseline
from core.run.bundle import writing
from core.show.export.bundle import bundle_texts
from core.show.sheets.verifications import WORDS
from core.store import ModelRecord
from dashboard import state
from tests import tiny_models
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import Jobs, Open, click, lines, status, table, texts


@pytest.fixture
def trial(mlp: ModelRecord) -> Trial:
    """A complete measurement with its speed-up, machine and inputs."""
    spec = sample_results.spec_for(mlp, intra_op_num_threads=1)
    found = sample_results.put_measured(state.store(), mlp, spec, fingerprint="f")
    assert found.result is not None
    inputs = [{"name": one["name"], "dtype": one["dtype"], "shape": [1, 16]} for one in mlp.info["inputs"]]
    contrast = {"candidate": found.id, "baseline": "b", "ratio": 1.4, "ratio_low": 1.3, "ratio_high": 1.5}
    contrast |= {"verdict": "FASTER", "rounds": 9, "holds": True}
    facts: dict[str, Any] = {"inputs": inputs, "outputs": [], "contrasts": [contrast]}
    facts["environment"] = state.scheduler().environment()
    state.store().update_trial(found.id, result=found.result | facts)
    return state.store().trial(found.id)


def bundle(trial: Trial, path: Path) -> Path:
    held = writing.contents(state.store(), trial, run=run_job)
    writing.write(path, held, bundle_texts(held, info=held.record.info), store=state.store())
    return path


def finished(at: AppTest) -> AppTest:
    assert state.scheduler().join(60)
    at.run()
    assert not at.exception
    return at


def on_verify(at: AppTest) -> AppTest:
    """Open the second tab."""
    at.session_state["export.tabs"] = "Verify"
    return at.run()


def test_a_bundle_is_made_by_a_job_and_can_be_downloaded(open_page: Open, trial: Trial) -> None:
    at = open_page("export", trial=trial.id)
    assert not [one for one in at.get("download_button") if one.key == "export.download_bundle"]
    at = finished(click(at, "export.bundle.make"))
    (download,) = [one for one in at.get("download_button") if one.key == "export.download_bundle"]
    assert f"mlp-{trial.id[:8]}.zip" in download.label
    assert state.store().artifact_path(trial.id, "bundle.zip").is_file()


def test_a_bundle_whose_model_is_gone_says_so(open_page: Open, trial: Trial, mlp: ModelRecord) -> None:
    at = open_page("export", trial=trial.id)
    Path(mlp.path).unlink()
    at = finished(click(at, "export.bundle.make"))
    assert len(at.error) == 1


def test_the_tab_says_what_to_do_before_anything_was_verified(open_page: Open, mlp: ModelRecord) -> None:
    at = on_verify(open_page("export", model=mlp))
    assert ":material/info:" in [one.icon for one in at.info]


def test_a_bundle_is_verified_and_its_three_answers_are_shown(
    open_page: Open, trial: Trial, tmp_path: Path
) -> None:
    data = bundle(trial, tmp_path / "b.zip").read_bytes()
    at = on_verify(open_page("export", trial=trial.id))
    at.file_uploader(key="verify.file").upload("mine.zip", data).run()
    at.toggle(key="verify.race").set_value(False).run()
    at = finished(click(at, "verify.start"))
    assert not at.error, texts(at)
    said = texts(at)
    assert f"mine.zip: {WORDS['NOT_MEASURED']}" in said
    assert tells(said, "CPUExecutionProvider.")
    assert any(numbers(line)[:1] == [0] for line in said.splitlines())
    assert any(numbers(line) == [1.40] for line in said.splitlines())
    assert "✓ model" in list(table(at, "Recorded")["Checked"])
    assert at.query_params["verify"]
    job = at.query_params["verify"]
    again = open_page("export", verify=job if isinstance(job, str) else job[0])  # a reload
    assert f"mine.zip: {WORDS['NOT_MEASURED']}" in texts(again)


def test_a_yaml_of_the_page_says_what_it_cannot_tell(open_page: Open, trial: Trial) -> None:
    at = open_page("export", trial=trial.id)
    yaml = next(one.value for one in at.code if one.value.startswith("# ORTune"))
    on_verify(at)
    at.file_uploader(key="verify.file").upload("mine.yaml", yaml.encode()).run()
    at.toggle(key="verify.race").set_value(False).run()
    at = finished(click(at, "verify.start"))
    assert lines(at, WORDS["UNDECIDED"])
    assert lines(at, "recorded inputs")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.zip", b"PK\x03\x04 nothing", "is damaged or not a zip file"),
        ("x.yaml", b"schema: 2", "`schema` must be 1"),
        ("x.yaml", b"schema: 1\nmodel: {path: /etc/passwd}", "outside the folders"),
        (
            "x.yaml",
            b"schema: 1\nmodel: {path: digits_cnn}\nworkload: {feeds: /etc/x.npz}",
            "outside the folders",
        ),
    ],
)
def test_what_cannot_be_opened_is_told_in_words(
    open_page: Open, mlp: ModelRecord, name: str, data: bytes, words: str
) -> None:
    at = on_verify(open_page("export", model=mlp))
    at.file_uploader(key="verify.file").upload(name, data).run()
    at = click(at, "verify.start")
    said = texts(at) + texts(finished(at))  # at once, or after its turn
    assert words in said


def test_without_a_file_it_says_what_is_missing(open_page: Open, mlp: ModelRecord) -> None:
    at = click(on_verify(open_page("export", model=mlp)), "verify.start")
    assert len(at.error) == 1
    at.text_input(key="verify.path").set_value("/etc/passwd").run()
    assert tells(click(at, "verify.start").error[0].value, "passwd")


def test_a_verification_that_runs_can_be_cancelled(open_page: Open, mlp: ModelRecord, jobs: Jobs) -> None:
    cancelled = jobs(status("v", kind="verify", what="verify x.zip", stage="race"))
    at = open_page("export", model=mlp, verify="v")
    assert at.button(key="verify.start").disabled
    click(at, "verify.cancel")
    assert cancelled == ["v"]


def test_models_that_take_no_batch_are_bundled_too(open_page: Open, add_model: Any) -> None:
    record = add_model(tiny_models.fixed_batch)
    found = sample_results.put_measured(
        state.store(), record, sample_results.spec_for(record), fingerprint="f", rows=2
    )
    held = writing.contents(state.store(), found, run=run_job)
    assert held.sample is not None
    assert held.sample["rows"] == 2


def test_a_kept_baseline_of_another_machine_is_refused(open_page: Open, trial: Trial, tmp_path: Path) -> None:
    machine = state.scheduler().environment()
    record_baseline(
        tmp_path / "b.json", trial, state.store().models()[0], {**machine, "kernel": "6.1.0-other"}
    )
    at = on_verify(open_page("export", trial=trial.id))
    data = bundle(trial, tmp_path / "b.zip").read_bytes()
    at.file_uploader(key="verify.file").upload("mine.zip", data).run()
    at.file_uploader(key="verify.against").upload("b.json", (tmp_path / "b.json").read_bytes()).run()
    at = finished(click(at, "verify.start"))
    assert lines(at, "kernel")
    at.toggle(key="verify.race").set_value(False).run()
    before = {one.value for one in at.error}
    [unraced] = {one.value for one in click(at, "verify.start").error} - before
    at.file_uploader(key="verify.against").upload("b.json", b"{}").run()
    [unread] = {one.value for one in click(at, "verify.start").error} - before
    assert tells(unread, "baseline")
    assert unraced != unread


def test_a_change_since_a_baseline_is_shown(
    open_page: Open, mlp: ModelRecord, jobs: Jobs, tmp_path: Path
) -> None:
    part = {"state": "YES", "why": "It runs."}
    change = {
        "state": "DIFFERS",
        "why": "0.80× as fast as the baseline.",
        "changed": ["kernel"],
        "cpus": 0.99,
    }
    (tmp_path / "kept.json").write_text("{}")
    document = {
        "state": "FAILED",
        "file": "x.zip",
        "notes": [],
        "checks": [],
        "differences": [],
        "targets": [],
    }
    document |= {"runs": part, "same": part, "fast": {"state": "HOLDS", "why": "As fast.", "gains": []}}
    document["signature"] = {
        "state": "UNKNOWN_KEY",
        "why": "Signed by an unknown key.",
        "hint": "Compare it.",
    }
    document |= {"change": change, "recorded_to": str(tmp_path / "kept.json")}
    jobs(status("v", kind="verify", state="COMPLETE", result=document))
    at = open_page("export", model=mlp, verify="v")
    said = texts(at)
    assert tells(said, f"x.zip: {WORDS['FAILED']}")
    assert tells(said, change["why"])
    assert tells(said, "Signed by an unknown key. Compare it.")
    assert lines(at, " kernel.")
    assert str(tmp_path) not in said  # where the server keeps it is nobody's business
    assert any(one.key == "verify.keep" for one in at.get("download_button"))
