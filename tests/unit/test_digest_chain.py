"""The chain of digests: each link is broken in turn, and the chain says which."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from core.evidence.measurement import Trial
from core.run.digest_chain import DigestChain, chain_of_file, chain_of_trial
from core.show.export.yaml_file import export_yaml
from core.show.sheets.provenance import WORDS, provenance_sheet
from core.store import Store
from core.wire.errors import MissingError
from core.wire.files import content_sha256
from tests import builders

ID = "aaaaaa000001"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "ortune.db")


@pytest.fixture
def trial(store: Store, tmp_path: Path) -> Trial:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"no model, but nobody looks")
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    spec = {
        "model": {"path": str(model), "sha256": digest},
        "session": {"intra_op_num_threads": 1},
        "workload": {"batch_size": 4, "feeds": "/a/folder/x.npz"},
    }
    result = {
        "latency": {"p50_s": 0.001, "p99_s": 0.0015},
        "latencies_s": [0.001, 0.00125],
        "fingerprint": "f",
        "contrasts": [{"verdict": "FASTER", "ratio": 1.5, "ratio_low": 1.25, "ratio_high": 1.75}],
        "environment": {"cpu": "EPYC", "python": "3.11", "secret": "not exported"},
    }
    one = builders.trial(ID, state="WAITING", model_sha256=digest, key="key", created_at=1000.0, spec=spec)
    store.create_trial(one)
    store.update_trial(ID, state="COMPLETE", result=result)
    return store.trial(ID)


@pytest.fixture
def yaml(trial: Trial, tmp_path: Path) -> Path:
    path = tmp_path / "best.yaml"
    path.write_text(export_yaml(trial), encoding="utf-8")
    return path


def states(chain: DigestChain) -> dict[str, str]:
    return {one.name: one.state for one in chain.links}


def broken(store: Store, statement: str) -> None:
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(statement)
        db.commit()


def test_an_untouched_chain_is_intact(store: Store, yaml: Path) -> None:
    found = chain_of_file(store, yaml)
    names = ("model", "result", "measurements", "YAML file")
    assert states(found) == dict.fromkeys(names, "MATCHES")
    assert (found.state, found.trial) == ("INTACT", ID)
    assert all(one.recorded == one.now for one in found.links)
    assert chain_of_trial(store, ID[:8]).state == "INTACT"
    assert WORDS["INTACT"] in provenance_sheet(found).headline


def test_a_changed_model_breaks_its_link(store: Store, trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"another model")
    found = chain_of_trial(store, ID)
    assert (found.state, states(found)["model"]) == ("BROKEN", "DIFFERS")


def test_a_missing_model_leaves_the_chain_incomplete(store: Store, trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").unlink()
    found = chain_of_trial(store, ID)
    assert (found.state, states(found)["model"]) == ("INCOMPLETE", "MISSING")


@pytest.mark.parametrize(
    ("link", "statement"),
    [
        ("result", "UPDATE trials SET result = replace(result, '0.001', '0.0009')"),
        ("measurements", "UPDATE samples SET data = data || x'00'"),
    ],
)
def test_a_changed_row_breaks_its_link(link: str, statement: str, store: Store, yaml: Path) -> None:
    broken(store, statement)
    found = chain_of_file(store, yaml)
    assert found.state == "BROKEN"
    assert [one.name for one in found.links if one.state == "DIFFERS"] == [link]
    assert "ortune restore" in next(one.why for one in found.links if one.name == link)


def test_deleted_measurements_are_missing(store: Store, trial: Trial) -> None:
    broken(store, "DELETE FROM samples")
    assert states(chain_of_trial(store, ID))["measurements"] == "MISSING"


def test_a_changed_number_in_the_file_breaks_its_link(store: Store, yaml: Path) -> None:
    yaml.write_text(yaml.read_text().replace("p50_s: 0.001", "p50_s: 0.0009"), encoding="utf-8")
    found = chain_of_file(store, yaml)
    assert states(found)["YAML file"] == "DIFFERS"
    assert "latency" in found.links[-1].why


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("intra_op_num_threads: 1", "intra_op_num_threads: 2", "session.intra_op_num_threads"),
        ("\n  intra_op_num_threads: 1\n", " {}\n", "session.intra_op_num_threads"),
        ("batch_size: 4", "batch_size: 5", "workload.batch_size"),
        ("effort: quick", "effort: publish", "protocol.effort"),
        ("path: ", "precision: fp16\n  path: ", "model.precision"),
        (
            "sha256: ",
            "sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef #",
            "model.sha256",
        ),
        ("p99_s: 0.0015", "p99_s: 0.0011", "measured.latency.p99_s"),
        ("ratio_high: 1.75", "ratio_high: 1.55", "measured.contrasts.ratio_high"),
        ("cpu: EPYC", "cpu: Ryzen", "environment.cpu"),
        ("state: COMPLETE", "state: FAIL", "measured.state"),
    ],
)
def test_each_changed_part_of_the_file_breaks_its_link(
    before: str, after: str, place: str, store: Store, yaml: Path
) -> None:
    text = yaml.read_text(encoding="utf-8")
    assert text.count(before) >= 1
    yaml.write_text(text.replace(before, after, 1), encoding="utf-8")
    link = chain_of_file(store, yaml).links[-1]
    assert (link.name, link.state) == ("YAML file", "DIFFERS")
    assert f"`{place}`" in link.why
    assert link.recorded != link.now


@pytest.mark.parametrize(
    ("pattern", "after", "place"),
    [
        (r"\n  sha256: \w+", "", "model.sha256"),
        ("p99_s: 0.0015", "p99_s: 0.0015\n    p9_s: 1.0", "measured.latency.p9_s"),
    ],
)
def test_what_cannot_be_compared_leaves_the_chain_incomplete(
    pattern: str, after: str, place: str, store: Store, yaml: Path
) -> None:
    text = yaml.read_text(encoding="utf-8")
    yaml.write_text(re.sub(pattern, after, text, count=1), encoding="utf-8")
    found = chain_of_file(store, yaml)
    assert (found.state, states(found)["YAML file"]) == ("INCOMPLETE", "MISSING")
    assert f"`{place}`" in found.links[-1].why


def test_external_weights_are_part_of_the_file(store: Store, trial: Trial, yaml: Path) -> None:
    other = replace(trial, id="cccccc000003", key="other", model_sha256="c" * 64)
    store.create_trial(replace(other, state="WAITING", result=None))
    store.update_trial(other.id, state="COMPLETE", result=trial.result)
    yaml.write_text(export_yaml(other), encoding="utf-8")
    found = chain_of_file(store, yaml)
    assert states(found)["YAML file"] == "MATCHES"
    assert "external weights" in found.links[0].why  # the file of the model alone says nothing of them
    text = yaml.read_text(encoding="utf-8")
    yaml.write_text(text.replace("c" * 64, "d" * 64), encoding="utf-8")
    assert "`model.content_sha256`" in chain_of_file(store, yaml).links[-1].why
    yaml.write_text(text.replace(f"  content_sha256: {'c' * 64}\n", ""), encoding="utf-8")
    assert states(chain_of_file(store, yaml))["YAML file"] == "MISSING"


def test_folders_are_those_of_each_machine(store: Store, yaml: Path) -> None:
    yaml.write_text(yaml.read_text(encoding="utf-8").replace("/a/folder/", "elsewhere/"), encoding="utf-8")
    assert chain_of_file(store, yaml).state == "INTACT"


def test_a_file_of_another_store_has_no_result_here(yaml: Path, tmp_path: Path) -> None:
    found = chain_of_file(Store(tmp_path / "other" / "ortune.db"), yaml)
    assert (found.state, states(found)["result"]) == ("INCOMPLETE", "MISSING")


def test_an_unknown_trial_is_no_chain(store: Store) -> None:
    with pytest.raises(MissingError):
        chain_of_trial(store, "bbbbbb000002")


def test_external_data_are_part_of_the_identity() -> None:
    assert content_sha256("a", []) == "a"
    assert content_sha256("a", [("w.bin", "b")]) == hashlib.sha256(b"a\nb w.bin").hexdigest()


def test_a_damaged_trial_is_shown_and_not_hidden(store: Store, trial: Trial) -> None:
    broken(store, "UPDATE trials SET state = 'FAIL'")
    found = chain_of_trial(store, ID)
    assert states(found)["result"] == "DIFFERS"
    assert replace(found, links=[]).state == "BROKEN"
