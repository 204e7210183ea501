"""Export's tab Digests: the chain of a result as a picture, intact and with each link broken in turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.evidence.measurement import Trial
from core.process.job_worker import run_job
from core.run.bundle import writing
from core.run.export_source import export_source_of
from core.show.export import format_named
from core.show.export.bundle import bundle_texts
from core.show.sheets.provenance import LINK_WORDS, WORDS
from core.store import ModelRecord
from dashboard import state
from tests.reading import tells
from tests.views import sample_results
from tests.views.page import Add, Open, click, table, texts
from tests.views.test_history import select

STORED = ("Model", "Variant", "Result", "Measurements")


@pytest.fixture
def variant(mlp: ModelRecord, add_variant: Add) -> ModelRecord:
    return add_variant(mlp, "lean", hidden=8)


@pytest.fixture
def trial(variant: ModelRecord) -> Trial:
    """A complete measurement of a variant, which can be exported."""
    spec = sample_results.spec_for(variant, intra_op_num_threads=1)
    found = sample_results.put_measured(state.store(), variant, spec, fingerprint="f")
    assert found.result is not None
    inputs = [
        {"name": one["name"], "dtype": one["dtype"], "shape": [1, 16]} for one in variant.info["inputs"]
    ]
    facts: dict[str, Any] = {"inputs": inputs, "outputs": [], "environment": state.scheduler().environment()}
    state.store().update_trial(found.id, result=found.result | facts)
    return state.store().trial(found.id)


def on_digests(open_page: Open, trial: str) -> AppTest:
    return open_page("export", trial=trial, tab="digests")


def boxes(at: AppTest) -> dict[str, str]:
    """The state of each link by its name, as symbol and word."""
    found = {}
    for number in range(10):
        parts = [one for one in at._tree if getattr(one, "key", None) == f"export.chain.{number}"]
        if parts:
            name, badge = (str(one.value) for one in parts[0].markdown[:2])
            found[name.strip("*")] = next(
                word
                for word, icon in (
                    (LINK_WORDS["MATCHES"], "check_circle"),
                    (LINK_WORDS["DIFFERS"], "cancel"),
                    (LINK_WORDS["MISSING"], "help"),
                )
                if f":material/{icon}:" in badge and word in badge
            )
    return found


def broken(statement: str) -> None:
    with closing(sqlite3.connect(state.store().path)) as db:
        db.execute(statement)
        db.commit()


def test_an_intact_chain_shows_all_its_links(open_page: Open, trial: Trial) -> None:
    at = on_digests(open_page, trial.id)
    assert boxes(at) == dict.fromkeys(STORED, LINK_WORDS["MATCHES"])
    assert WORDS["INTACT"] in texts(at)
    digests = table(at, "Recorded")
    assert list(digests["Recorded"]) == list(digests["Now"])
    assert trial.model_sha256 in list(digests["Recorded"])
    assert len([one for one in at.markdown if one.value == "→"]) == len(STORED) - 1


def _change_model(trial: Trial, variant: ModelRecord) -> None:
    root = state.store().model(variant.details["variant"]["root"])
    assert root is not None
    Path(root.path).write_bytes(b"another model")


def _change_variant(trial: Trial, variant: ModelRecord) -> None:
    Path(variant.path).write_bytes(b"another model")


def _change_result(trial: Trial, variant: ModelRecord) -> None:
    broken("UPDATE trials SET result = replace(result, '\"runs\"', '\"Runs\"')")


def _change_measurements(trial: Trial, variant: ModelRecord) -> None:
    broken("UPDATE samples SET data = data || x'00'")


@pytest.mark.parametrize(
    ("link", "change"),
    [
        ("Model", _change_model),
        ("Variant", _change_variant),
        ("Result", _change_result),
        ("Measurements", _change_measurements),
    ],
)
def test_a_changed_link_is_shown(
    link: str,
    change: Callable[[Trial, ModelRecord], None],
    open_page: Open,
    trial: Trial,
    variant: ModelRecord,
) -> None:
    change(trial, variant)
    at = on_digests(open_page, trial.id)
    found = boxes(at)
    assert [name for name, word in found.items() if word == LINK_WORDS["DIFFERS"]] == [link]
    assert WORDS["BROKEN"] in texts(at)


def test_a_check_is_repeated_when_asked(open_page: Open, trial: Trial, variant: ModelRecord) -> None:
    at = on_digests(open_page, trial.id)
    _change_variant(trial, variant)
    assert boxes(at.run())["Variant"] == LINK_WORDS["MATCHES"]  # with the time of the check beside it
    assert tells(texts(at), "Checked")
    assert boxes(click(at, "export.digests.again"))["Variant"] == LINK_WORDS["DIFFERS"]


def test_a_missing_file_is_no_difference(open_page: Open, trial: Trial, variant: ModelRecord) -> None:
    Path(variant.path).unlink()
    at = on_digests(open_page, trial.id)
    assert boxes(at)["Variant"] == LINK_WORDS["MISSING"]
    assert WORDS["INCOMPLETE"] in texts(at)


def upload(at: AppTest, name: str, data: bytes) -> AppTest:
    return at.file_uploader(key="export.digests.file").set_value((name, data, "text/plain")).run()


def test_an_uploaded_file_ends_the_chain(open_page: Open, trial: Trial, tmp_path: Path) -> None:
    text = format_named("yaml").text(export_source_of(state.store(), trial), "")
    at = upload(on_digests(open_page, trial.id), "best.yaml", text.encode())
    assert boxes(at) == dict.fromkeys((*STORED, "YAML file"), LINK_WORDS["MATCHES"])
    assert tells(texts(at), "best.yaml", "not signed")
    other = text.replace("intra_op_num_threads: 1", "intra_op_num_threads: 2")
    assert other != text
    at = upload(at, "best.yaml", other.encode())
    assert boxes(at)["YAML file"] == LINK_WORDS["DIFFERS"]
    assert not list((state.store().folder / "cache" / "verify").iterdir())  # nothing is left


def test_the_bundle_of_the_page_ends_the_chain(open_page: Open, trial: Trial) -> None:
    path = state.store().artifact_path(trial.id, "bundle.zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    held = writing.contents(state.store(), trial, run=run_job)
    writing.write(path, held, bundle_texts(held, info=held.record.info), store=state.store())
    at = on_digests(open_page, trial.id)
    assert boxes(at) == dict.fromkeys((*STORED, "YAML in the bundle", "Bundle"), LINK_WORDS["MATCHES"])
    path.write_bytes(path.read_bytes().replace(b"intra_op", b"inter_op", 1))
    at = on_digests(open_page, trial.id)
    assert boxes(at) == {"Bundle": LINK_WORDS["DIFFERS"]}


def test_a_damaged_result_is_reached_from_history(open_page: Open, trial: Trial) -> None:
    _change_result(trial, state.store().model(trial.model_sha256))  # type: ignore[arg-type]
    at = select(open_page("history"), 0)
    assert "Digests" in [one.proto.label for one in at.get("page_link")]
    at = on_digests(open_page, trial.id)
    assert boxes(at)["Result"] == LINK_WORDS["DIFFERS"]
    assert "ortune restore" in texts(at)


def test_an_unknown_trial_and_no_trial_are_told(open_page: Open) -> None:
    at = on_digests(open_page, "bbbbbb000002")
    assert tells(at.error[0].value, "bbbbbb000002")
    at = open_page("export", tab="digests")
    assert any("No result is chosen" in one.value for one in at.info)
