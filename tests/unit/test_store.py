"""The store: what goes in comes out, and no file is ever harmed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from core import wire
from core.evidence.comparison import Comparison, Role
from core.evidence.measurement import Trial
from core.process import scratch
from core.run.job_log import clean_up
from core.store import PRUNED, RAW_FIELDS, ModelRecord, Store, database, home, pruning
from core.wire.errors import INTERRUPTED, StoreError
from tests import builders

ROOT = Path(__file__).parents[2]
SHA = "0123456789abcdef" * 4


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home" / "ortune.db")


def trial(id: str = "aaaaaa000001", **changes: Any) -> Trial:
    facts = {"state": "WAITING", "model_sha256": "sha", "key": "key", "created_at": 1000.0}
    return builders.trial(id, **(facts | changes))


def result(**changes: Any) -> dict[str, Any]:
    return {
        "batch_size": 2,
        "latency": {"p50_s": 0.001, "p99_s": None},
        "latencies_s": [0.001, 0.00125],
        "warmup_latencies_s": [0.5],
        "notes": ["µs – ünïcode"],
        "fingerprint": "f1",
        **changes,
    }


def noise(runs: int) -> list[float]:
    """Latencies that no compression makes small, in seconds."""
    return [ns / 1e9 for ns in random.Random(0).choices(range(1 << 30, 1 << 31), k=runs)]


def record(content: str = SHA, **changes: Any) -> ModelRecord:
    facts: dict[str, Any] = {
        "name": "digits",
        "sha256": "f" + content[1:],
        "path": f"/models/{content[:6]}.onnx",
        "source": "upload",
        "info": {"nodes": 3},
        "note": "random weights",
        "created_at": 5.0,
        "details": {"max_abs": 1e-6},
    }
    return builders.model(content=content, **(facts | changes))


# --- trials ---------------------------------------------------------------------------------------------


def test_trial_comes_back_as_it_went_in(store):
    one = trial(
        study="s", owner="me", state="FAIL", error={"type": "ModelError", "message": "m", "hint": "h"}
    )
    store.create_trial(one)
    assert store.trial(one.id) == one


def test_result_comes_back_with_every_sample(store):
    store.create_trial(trial())
    assert store.update_trial(
        "aaaaaa000001", state="COMPLETE", result=result(), finished_at=2.0, fingerprint="f1"
    )
    got = store.trial("aaaaaa000001")
    assert got.result == result()
    assert (got.state, got.finished_at, got.fingerprint) == ("COMPLETE", 2.0, "f1")


def test_list_leaves_raw_samples_out_and_keeps_the_rest(store):
    store.create_trial(trial(state="COMPLETE", result=result(profile={"nodes": []})))
    (listed,) = store.trials()
    assert listed.result == {k: v for k, v in result().items() if k not in RAW_FIELDS}


def test_new_result_replaces_the_samples_of_the_old(store):
    store.create_trial(trial(result=result()))
    store.update_trial("aaaaaa000001", result=result(latencies_s=[7.0]))
    assert store.trial("aaaaaa000001").result["latencies_s"] == [7.0]
    store.update_trial("aaaaaa000001", result=None)
    assert store.trial("aaaaaa000001").result is None


def test_trials_are_listed_newest_first_and_filtered(store):
    for number, (study, kind, state) in enumerate(
        [("a", "measure", "COMPLETE"), ("a", "profile", "COMPLETE"), ("b", "measure", "FAIL")]
    ):
        store.create_trial(
            trial(f"t{number}", study=study, kind=kind, state=state, created_at=100.0 + number)
        )

    def ids(**filters: Any) -> list[str]:
        return [one.id for one in store.trials(**filters)]

    assert ids() == ["t2", "t1", "t0"]
    assert ids(limit=2) == ["t2", "t1"]
    assert ids(study="a") == ["t1", "t0"]
    assert ids(study="a", kind="measure") == ["t0"]
    assert ids(state="FAIL") == ["t2"]
    assert ids(model_sha256="other") == []


def test_trials_of_the_same_instant_keep_their_order(store):
    for number in range(5):
        store.create_trial(trial(f"t{number}"))
    assert [one.id for one in store.trials()] == ["t4", "t3", "t2", "t1", "t0"]


def test_trial_is_found_by_six_characters_and_not_by_five(store):
    store.create_trial(trial("abcdef123456"))
    assert store.trial("abcdef").id == "abcdef123456"
    with pytest.raises(StoreError, match="`abcde`"):
        store.trial("abcde")


def test_prefix_of_two_trials_is_refused(store):
    store.create_trial(trial("abcdef1"))
    store.create_trial(trial("abcdef2"))
    with pytest.raises(StoreError, match="`abcdef`"):
        store.trial("abcdef")
    assert store.trial("abcdef1").id == "abcdef1"


@pytest.mark.parametrize("ref", ["%%%%%%", "______", "' OR 1=1 --", ""])
def test_prefix_is_no_pattern_and_no_sql(store, ref):
    store.create_trial(trial())
    with pytest.raises(StoreError, match="trial"):
        store.trial(ref)


def test_update_of_a_deleted_trial_says_so(store):
    assert store.update_trial("gone", state="COMPLETE") is False


def test_delete_removes_samples_files_and_baseline(store):
    store.create_trial(trial(result=result()))
    store.create_trial(trial("bbbbbb"))
    trace = store.artifact_path("aaaaaa000001", "trace.json")
    trace.write_text("[]")
    store.pin_baseline("sha", "aaaaaa000001")
    store.delete_trials(["aaaaaa000001", "never existed"])
    assert [one.id for one in store.trials()] == ["bbbbbb"]
    assert not trace.parent.exists()
    assert store.baseline("sha") is None
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT count(*) FROM samples").fetchone() == (0,)


def test_delete_cannot_leave_the_folder_of_artifacts(store):
    (store.folder / "precious").mkdir()
    store.delete_trials(["../precious"])
    assert (store.folder / "precious").is_dir()


def test_newest_complete_measurement_is_found_for_reuse(store):
    common = {"state": "COMPLETE", "fingerprint": "f1"}
    store.create_trial(trial("old", **common, finished_at=1.0, result=result()))
    store.create_trial(trial("new", **common, finished_at=2.0, result=result()))
    store.create_trial(trial("prof", **common, finished_at=3.0, kind="profile"))
    store.create_trial(trial("fail", state="FAIL", fingerprint="f1", finished_at=4.0))
    store.create_trial(trial("other", state="COMPLETE", fingerprint="f2", finished_at=5.0))
    found = store.find_complete("key", "f1")
    assert found is not None
    assert found.id == "new"
    assert store.find_complete("another key", "f1") is None
    assert store.find_complete("key", "f1", model_sha256="sha") is not None
    assert store.find_complete("key", "f1", model_sha256="other weights") is None


def test_unfinished_trials_of_dead_processes_fail(store):
    store.create_trial(trial("waits", state="WAITING"), process="dead")
    store.create_trial(trial("runs", state="RUNNING"), process="dead")
    store.create_trial(trial("lives", state="RUNNING"), process="alive")
    store.create_trial(trial("done", state="COMPLETE"), process="dead")
    assert store.interrupt_orphans(lambda process, created_at: process == "alive") == 2
    assert {one.id: one.state for one in store.trials()} == {
        "waits": "FAIL",
        "runs": "FAIL",
        "lives": "RUNNING",
        "done": "COMPLETE",
    }
    error = store.trial("waits").error
    assert error is not None
    assert error["message"].endswith(INTERRUPTED)


def test_list_of_trials_does_not_read_their_samples(store):
    """A list costs the same whether a trial has two samples or a thousand."""
    store.create_trial(trial("with", state="COMPLETE", result=result()))
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("DROP TABLE samples")
        db.commit()
    assert [one.id for one in store.trials()] == ["with"]
    with pytest.raises(StoreError):
        store.trial("with")


# --- comparisons and self-tests -------------------------------------------------------------------------


def comparison(
    id: str = "cccccc000001", *, trials: Sequence[str] = ("cand", "base"), **changes: Any
) -> Comparison:
    facts: dict[str, Any] = {
        "state": "WAITING",
        "model_sha256": "sha",
        "protocol": {"precision": "quick", "looks": [8, 16]},
        "created_at": 1000.0,
    }
    roles: dict[str, Role] = {**dict.fromkeys(trials, "candidate"), trials[-1]: "anchor"}
    return builders.comparison(roles, id, **(facts | changes))


def put_comparison(store: Store, id: str, trials: Sequence[str], **changes: Any) -> None:
    store.create_comparison(comparison(id, trials=trials, **changes))
    for number, name in enumerate(trials):
        kind = "reference" if number == len(trials) - 1 else "measure"
        store.create_trial(trial(name, kind=kind, comparison=id))


def test_comparison_comes_back_as_it_went_in(store):
    one = comparison(
        study="s",
        owner="me",
        state="FAIL",
        error={"type": "WorkerError", "message": "m", "hint": "h"},
        warnings=["µs"],
        result={"contrasts": [{"ratio": 1.5, "ratio_low": None}]},
    )
    store.create_comparison(one)
    assert store.comparison(one.id) == store.comparison(one.id[:6]) == one


def test_comparison_is_updated_and_unknown_ones_are_named(store):
    store.create_comparison(comparison())
    assert store.update_comparison("cccccc000001", state="COMPLETE", result={"rounds": 8}, fingerprint="f1")
    found = store.comparison("cccccc000001")
    assert (found.state, found.result, found.fingerprint) == ("COMPLETE", {"rounds": 8}, "f1")
    assert store.update_comparison("gone", state="COMPLETE") is False
    with pytest.raises(StoreError, match="dddddd"):
        store.comparison("dddddd")


def test_comparisons_are_listed_newest_first_and_filtered(store):
    for number, (study, state) in enumerate([("a", "COMPLETE"), ("b", "FAIL"), ("a", "FAIL")]):
        store.create_comparison(comparison(f"c{number}", study=study, state=state, created_at=100.0 + number))

    def ids(**filters: Any) -> list[str]:
        return [one.id for one in store.comparisons(**filters)]

    assert ids() == ["c2", "c1", "c0"]
    assert ids(limit=1) == ["c2"]
    assert ids(study="a", state="FAIL") == ["c2"]
    assert ids(model_sha256="other") == []


def test_a_comparison_is_listed_with_every_model_in_it(store):
    put_comparison(store, "race", ["cand", "base"])
    store.update_trial("cand", model_sha256="a variant")
    assert [one.id for one in store.comparisons(compared_sha256="a variant")] == ["race"]
    assert [one.id for one in store.comparisons(compared_sha256="sha", limit=1)] == ["race"]
    assert store.comparisons(compared_sha256="a variant", state="FAIL") == []
    assert store.comparisons(compared_sha256="other") == []


def test_references_are_listed_only_when_asked_for(store):
    put_comparison(store, "race", ["cand", "base"])
    store.create_trial(trial("prof", kind="profile"))
    assert [one.id for one in store.trials()] == ["prof", "cand"]
    assert [one.id for one in store.trials(kind="reference")] == ["base"]
    assert [one.id for one in store.trials_of("race")] == ["cand", "base"]


def test_blocks_are_raw_and_stand_with_the_samples(store):
    blocks = [{"round": 0, "runs": 2, "flags": ["foreign load"]}]
    store.create_trial(trial(result=result(blocks=blocks)))
    assert "blocks" not in store.trials()[0].result
    assert store.trial("aaaaaa000001").result["blocks"] == blocks


def test_last_candidate_takes_comparison_and_references_with_it(store):
    put_comparison(store, "race", ["one", "two", "base"])
    put_comparison(store, "other", ["three", "four"])
    store.delete_trials(["one"])
    assert [one.trial for one in store.comparison("race").contestants] == ["one", "two", "base"]
    assert [one.id for one in store.trials_of("race")] == ["two", "base"]
    store.delete_trials(["two"])
    assert [one.id for one in store.comparisons()] == ["other"]
    assert store.trials(kind="reference", limit=9) == store.trials_of("other")[1:]
    assert [one.id for one in store.trials()] == ["three"]


def test_unfinished_comparisons_of_dead_processes_fail(store):
    for name, process in (("dead", "gone"), ("lives", "alive")):
        store.create_comparison(comparison(name, state="RUNNING"), process=process)
        store.create_trial(trial(f"t {name}", state="RUNNING", comparison=name), process=process)
    assert store.interrupt_orphans(lambda process, created_at: process == "alive") == 1
    assert {one.id: one.state for one in store.comparisons()} == {"dead": "FAIL", "lives": "RUNNING"}
    assert store.comparison("dead").error["message"].endswith(INTERRUPTED)


def test_an_interrupted_trial_does_not_end_before_its_start(store):
    later = time.time() + 86_400  # the clock was a day ahead when it began
    store.create_trial(trial("runs", state="RUNNING", started_at=later), process="dead")
    store.create_trial(trial("waits", state="WAITING"), process="dead")
    began = time.time()
    assert store.interrupt_orphans(lambda process, created_at: False) == 2
    assert store.trial("runs").finished_at == later
    assert store.trial("waits").finished_at >= began


def test_rejected_measurement_is_not_reused(store):
    common = {"state": "COMPLETE", "fingerprint": "f1"}
    store.create_trial(trial("good", **common, finished_at=1.0, result=result(grade="B")))
    store.create_trial(trial("rejected", **common, finished_at=2.0, result=result(grade="F")))
    assert store.find_complete("key", "f1").id == "good"


def test_rescued_comparison_is_taken_back(store):
    store.create_comparison(comparison())
    finished = comparison(state="COMPLETE", result={"rounds": 8})
    path = store.rescue(finished)
    assert store.import_rescued() == 1
    assert store.comparison(finished.id) == finished
    assert not path.exists()


def test_rescued_trial_of_an_earlier_version_is_taken_back(store):
    store.create_trial(trial())
    path = store.rescue(trial(state="COMPLETE", result=result()))
    data = json.loads(path.read_text())
    del data["comparison"]
    path.write_text(json.dumps(data))
    assert store.import_rescued() == 1
    assert store.trial("aaaaaa000001").state == "COMPLETE"


def test_self_tests_are_kept_by_machine_newest_first_and_not_for_ever(store, monkeypatch):
    monkeypatch.setattr("core.store.store.SELF_TESTS_KEPT", 3)
    store.put_self_test("f2", {"ratio": 9.0}, at=1.0)
    store.put_self_test("", {"ratio": 7.0})
    for number in range(5):
        store.put_self_test("f1", {"ratio": 1.0 + number, "when": "before"}, at=100.0 + number)
    assert store.self_tests("f1") == [
        {"ratio": 5.0, "when": "before", "at": 104.0},
        {"ratio": 4.0, "when": "before", "at": 103.0},
        {"ratio": 3.0, "when": "before", "at": 102.0},
    ]
    assert len(store.self_tests("f1", limit=2)) == 2
    assert [one["ratio"] for one in store.self_tests("f2")] == [9.0]
    assert store.self_tests("") == []


# --- pruning --------------------------------------------------------------------------------------------


def put_ended(store: Store, id: str, *, at: float, runs: int = 2000, **changes: Any) -> None:
    """A comparison that ended `at`, with samples on both sides."""
    store.create_comparison(comparison(f"race {id}", trials=[id, f"{id} base"], state="COMPLETE"))
    for name, kind in ((id, "measure"), (f"{id} base", "reference")):
        values = {"kind": kind, "state": "COMPLETE", "created_at": at - 9, "finished_at": at, **changes}
        store.create_trial(
            trial(name, comparison=f"race {id}", result=result(latencies_s=noise(runs)), **values)
        )


def has_samples(store: Store, *ids: str) -> list[bool]:
    return ["latencies_s" in (store.trial(one).result or {}) for one in ids]


def test_pruning_by_age_drops_samples_marks_the_trials_and_keeps_the_numbers(store):
    put_ended(store, "first1", at=100.0)
    put_ended(store, "second", at=200.0)
    before = time.time()
    done = store.prune(before=150.0)
    assert done.trials == ("first1", "first1 base")
    assert has_samples(store, "first1", "first1 base", "second", "second base") == [False, False, True, True]
    kept = store.trial("first1")
    assert before <= kept.result.pop(PRUNED) <= time.time()
    assert kept.result == {k: v for k, v in result().items() if k not in RAW_FIELDS}
    assert kept.state == "COMPLETE"
    assert store.trials()[1].result[PRUNED]
    assert PRUNED not in store.trial("second").result
    assert store.trial("first1").to_dict()["latencies_s"] is None
    assert store.prune(before=150.0).trials == ()


def test_pruning_by_size_takes_the_oldest_comparisons_and_no_more_of_them_than_it_must(store):
    for number, name in enumerate(["ccc", "aaa", "bbb"]):
        put_ended(store, name, at=100.0 + number)
    everything = store.prune(keep_bytes=10**9)
    assert everything.trials == ()
    one_comparison = everything.kept_bytes // 3
    done = store.prune(keep_bytes=2 * one_comparison)
    assert done.trials == ("ccc", "ccc base")
    assert done.kept_bytes <= 2 * one_comparison
    assert done.samples_bytes + done.kept_bytes == everything.kept_bytes
    assert store.prune(keep_bytes=0).trials == ("aaa", "aaa base", "bbb", "bbb base")
    assert store.prune(keep_bytes=0).kept_bytes == 0


def test_age_and_size_hold_together(store):
    for number in range(3):
        put_ended(store, f"t{number}", at=100.0 + number)
    total = store.prune(keep_bytes=10**9).kept_bytes
    assert store.prune(before=100.5, keep_bytes=total * 2 // 3).trials == ("t0", "t0 base")
    assert store.prune(before=100.5, keep_bytes=total // 3).trials == ("t1", "t1 base")


def test_both_sides_of_a_comparison_go_together_when_the_later_one_is_old_enough(store):
    put_ended(store, "duel", at=100.0)
    store.update_trial("duel base", finished_at=200.0)
    assert store.prune(before=150.0).trials == ()
    assert store.prune(before=250.0).trials == ("duel", "duel base")


def test_pinned_baselines_profiles_and_unfinished_comparisons_keep_their_samples(store):
    put_ended(store, "pinned", at=1.0)
    store.pin_baseline("sha", "pinned")
    put_ended(store, "running", at=2.0)
    store.update_trial("running base", state="RUNNING")
    store.create_trial(trial("prof", kind="profile", state="COMPLETE", result=result(profile={"nodes": []})))
    done = store.prune(before=1e12, keep_bytes=0)
    assert done.trials == ("pinned base",)
    assert done.baselines_kept == 1
    assert has_samples(store, "pinned", "running", "running base", "prof") == [True] * 4
    assert store.trial("prof").result["profile"] == {"nodes": []}
    store.pin_baseline("sha", None)
    assert store.prune(before=1e12).trials == ("pinned",)


def test_baseline_that_is_pinned_while_others_are_dropped_keeps_its_samples(store, monkeypatch):
    for name in ("early1", "later1"):
        put_ended(store, name, at=1.0)
    original = pruning._drop_one

    def slow(db, trial_id, now):
        if trial_id == "later1":
            db.execute("INSERT INTO settings VALUES ('baseline:sha', 'later1')")
        return original(db, trial_id, now)

    monkeypatch.setattr(pruning, "_drop_one", slow)
    assert store.prune(before=2.0).trials == ("early1", "early1 base", "later1 base")
    assert has_samples(store, "later1") == [True]


def test_pruning_of_one_model_leaves_the_others_alone(store):
    put_ended(store, "mine", at=1.0, model_sha256="mine")
    put_ended(store, "theirs", at=1.0, model_sha256="theirs")
    done = store.prune(before=2.0, keep_bytes=0, model_sha256="mine")
    assert done.trials == ("mine", "mine base")
    assert has_samples(store, "theirs") == [True]


def test_trial_whose_result_is_gone_but_whose_samples_are_left_is_pruned_as_well(store):
    put_ended(store, "odd", at=1.0)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE trials SET result = NULL, checksum = '' WHERE id = 'odd'")  # as an older version
        db.commit()
    assert store.prune(before=2.0).trials == ("odd", "odd base")
    assert store.trial("odd").result is None


def test_freed_space_leaves_the_file_and_a_trial_run_tells_how_much(store):
    for number in range(4):
        put_ended(store, f"t{number}", at=100.0 + number, runs=40_000)
    whole = store.path.stat().st_size
    would = store.prune(before=103.0, dry_run=True)
    assert store.path.stat().st_size == whole
    assert has_samples(store, "t0", "t3") == [True, True]
    done = store.prune(before=103.0)
    assert (done.trials, done.samples_bytes, done.kept_bytes) == (
        would.trials,
        would.samples_bytes,
        would.kept_bytes,
    )
    assert done.file_bytes == store.path.stat().st_size == whole - done.freed_bytes
    assert done.freed_bytes > whole // 2
    assert would.freed_bytes == pytest.approx(done.freed_bytes, rel=0.05)
    assert [one.id for one in store.trials()] == ["t3", "t2", "t1", "t0"]
    assert len(store.comparisons()) == 4
    assert Store(store.path).trial("t3").result["latencies_s"] == noise(40_000)


def test_trials_of_the_same_instant_keep_their_order_when_the_file_is_written_anew(store):
    for number in range(9):
        store.create_trial(trial(f"t{number}", state="COMPLETE", comparison="race", result=result()))
    store.delete_trials(["t0", "t4"])
    assert store.prune(before=1e12).trials
    assert [one.id for one in store.trials()] == ["t8", "t7", "t6", "t5", "t3", "t2", "t1"]
    assert [one.id for one in store.trials_of("race")] == ["t1", "t2", "t3", "t5", "t6", "t7", "t8"]


def test_pruning_while_another_process_writes_changes_nothing_and_says_so(store, monkeypatch):
    put_ended(store, "t", at=1.0)
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="writing"):
            store.prune(before=2.0)
        assert has_samples(store, "t") == [True]


def test_writer_that_comes_between_is_told_with_what_is_done_already(store, monkeypatch):
    put_ended(store, "t", at=1.0, runs=40_000)
    whole = store.path.stat().st_size
    original = database.Database.shrink
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:

        def late(self):
            other.execute("BEGIN IMMEDIATE")
            original(self)

        with monkeypatch.context() as patch:
            patch.setattr(database.Database, "shrink", late)
            with pytest.raises(StoreError, match="2 trials"):
                store.prune(before=2.0)
        other.execute("ROLLBACK")
    assert has_samples(store, "t") == [False]
    done = store.prune(before=2.0)
    assert done.trials == ()
    assert done.file_bytes < whole // 2


def test_reader_that_stays_keeps_the_file_large_and_is_named(store, monkeypatch):
    put_ended(store, "t", at=1.0, runs=40_000)
    whole = store.path.stat().st_size
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM trials").fetchall()
        with pytest.raises(StoreError, match="reading"):
            store.prune(before=2.0)
        assert len(reader.execute("SELECT * FROM samples").fetchall()) == 2  # its view does not change
    store.prune(before=2.0)
    assert store.path.stat().st_size < whole // 2


def test_samples_that_are_damaged_are_an_error_in_words_and_lists_do_not_care(store):
    store.create_trial(trial(result=result()))
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE samples SET data = x'01ff'")
        db.commit()
    with pytest.raises(StoreError, match="aaaaaa000001"):
        store.trial("aaaaaa000001")
    assert store.trials()[0].result["batch_size"] == 2


# --- results that the database does not take ------------------------------------------------------------


@pytest.fixture
def full(store):
    patch = pytest.MonkeyPatch()
    original = database._connection

    def limited(path: Path):
        manager = original(path)

        class Limited:
            def __enter__(self):
                db = manager.__enter__()
                db.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size for it
                return db

            def __exit__(self, *details):
                return manager.__exit__(*details)

        return Limited()

    store.create_trial(trial())
    patch.setattr(database, "_connection", limited)
    yield patch
    patch.undo()


def test_full_disk_is_named_and_nothing_is_half_written(store, full):
    long = result(latencies_s=noise(20_000))
    with pytest.raises(StoreError, match="full") as caught:
        store.update_trial("aaaaaa000001", state="COMPLETE", result=long)
    assert caught.value.hint
    assert store.trial("aaaaaa000001") == trial()


def test_rescued_result_is_taken_back_when_there_is_space_again(store, full):
    finished = trial(state="COMPLETE", result=result(latencies_s=noise(20_000)), fingerprint="f1")
    path = store.rescue(finished)
    assert path.parent == store.folder
    with pytest.raises(StoreError, match="full"):
        store.import_rescued()
    assert path.exists()
    full.undo()
    assert store.import_rescued() == 1
    assert store.trial(finished.id) == finished
    assert not path.exists()
    assert store.import_rescued() == 0


def test_what_a_full_disk_rejects_is_read_as_it_ended_until_it_is_written(store, full):
    ended = trial(state="COMPLETE", result=result(latencies_s=noise(20_000)))
    store.hold(ended, "The disk is full.")
    assert store.trial(ended.id) == ended
    assert [one.state for one in store.trials()] == ["COMPLETE"]
    stranger = store.for_person("else", sees_all=False)
    assert [one.row for one in stranger.not_stored()] == [ended]
    assert Store(store.path).trial(ended.id).state != "COMPLETE"
    with pytest.raises(StoreError, match="full"):
        store.write_held()
    full.undo()
    store.share([ended.id], private=True)
    assert stranger.not_stored() == []
    assert store.trial(ended.id) == ended
    store.write_held()
    assert store.not_stored() == []
    assert Store(store.path).trial(ended.id) == ended


def test_rescued_file_of_somebody_else_stays(store):
    for name, text in [("a", "{"), ("b", "[]"), ("c", '{"id": "x"}'), ("d", '{"id": 3}')]:
        (store.folder / f"rescued-{name}.json").write_text(text)
    assert store.import_rescued() == 0
    assert len(list(store.folder.glob("rescued-*.json"))) == 4


def test_result_goes_to_the_temporary_folder_when_its_own_takes_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    store.folder = tmp_path / "gone"
    path = store.rescue(trial(result=result()))
    assert path.parent == tmp_path
    assert json.loads(path.read_text())["result"] == result()


def test_result_that_can_be_kept_nowhere_is_an_error(store, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "gone"))
    store.folder = tmp_path / "gone as well"
    with pytest.raises(StoreError, match="anywhere"):
        store.rescue(trial(result=result()))


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_really_full_file_system_is_named(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=800k", "ortune-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this container may not mount")
    try:
        store = Store(folder / "ortune.db")
        store.create_trial(trial())
        with pytest.raises(StoreError, match="full"):
            store.update_trial("aaaaaa000001", result=result(latencies_s=noise(200_000)))
        assert store.trial("aaaaaa000001") == trial()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small(tmp_path):
    """A file system of a few hundred kilobytes, and how to change it."""
    folder = tmp_path / "small"
    folder.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounts a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "ortune-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Fill the disk to the last byte."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def make_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


CANNOT_WRITE = pytest.mark.parametrize(
    ("spoil", "words"), [(fill, "disk is full"), (make_read_only, "may not be written|disk is full")]
)


def leave_a_journal(path: Path) -> None:
    """Change the store in a process that is killed: the change is in the journal alone."""
    code = (
        "import os, sys, sqlite3\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('UPDATE trials SET study = ?, checksum = ?', ('newest', ''))\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    path.with_name(f"{path.name}-shm").unlink()
    assert path.with_name(f"{path.name}-wal").stat().st_size


@CANNOT_WRITE
@pytest.mark.parametrize("open_before", [False, True])
def test_results_can_be_read_where_nothing_can_be_written(small, spoil, words, open_before):
    path = small / "ortune.db"
    before = Store(path)
    finished = trial(state="COMPLETE", result=result(latencies_s=noise(500)))
    before.create_trial(finished)
    spoil(small)
    store = before if open_before else Store(path)
    assert store.trial(finished.id) == finished
    assert [one.id for one in store.trials()] == [finished.id]
    with pytest.raises(StoreError, match=words):
        store.update_trial(finished.id, state="FAIL")
    clean_up(store)
    assert store.trial(finished.id) == finished
    assert store.rescued() == []


@CANNOT_WRITE
def test_what_stands_in_the_journal_is_read_too(small, spoil, words, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # other tests use the common one at the same time
    path = small / "ortune.db"
    Store(path).create_trial(trial(state="COMPLETE"))
    leave_a_journal(path)
    spoil(small)
    assert Store(path).trial("aaaaaa000001").study == "newest"
    assert not list(tmp_path.glob(f"{scratch.PREFIX}*/ortune.db"))


@CANNOT_WRITE
def test_a_store_that_cannot_be_made_is_still_refused(small, spoil, words):
    spoil(small)
    with pytest.raises(StoreError):
        Store(small / "ortune.db")


def test_a_full_disk_that_has_room_again_is_written_to_by_the_same_store(small):
    path = small / "ortune.db"
    Store(path).create_trial(trial())
    fill(small)
    store = Store(path)
    assert store.trial("aaaaaa000001").state == "WAITING"
    (small / "filler").unlink()
    assert store.update_trial("aaaaaa000001", state="FAIL")
    assert store.trial("aaaaaa000001").state == "FAIL"


def test_rescued_results_are_named_wherever_they_lie_and_taken_back_from_there(store, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for one in (trial(), trial("bbbbbb000002")):
        store.create_trial(one)
    beside = store.rescue(trial(state="COMPLETE", result=result()))
    folder, store.folder = store.folder, tmp_path / "gone"
    elsewhere = store.rescue(trial("bbbbbb000002", state="COMPLETE", result=result()))
    store.rescue(trial("cccccc000003", state="COMPLETE", result=result()))  # another store's
    store.folder = folder
    assert elsewhere.parent == tmp_path / "tmp"
    assert store.rescued() == [beside, elsewhere]
    assert store.import_rescued() == 2
    assert store.trial("bbbbbb000002").result == result()
    assert store.rescued() == []
    assert len(list((tmp_path / "tmp").iterdir())) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_file_of_another_user_in_the_temporary_folder_is_no_result(store, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    store.create_trial(trial())
    folder, store.folder = store.folder, tmp_path / "gone"
    path = store.rescue(trial(state="COMPLETE", result=result()))
    store.folder = folder
    os.chown(path, 12345, 12345)
    assert store.rescued() == []
    assert store.import_rescued() == 0
    link = path.with_name("rescued-link.json")
    link.symlink_to(path)
    assert store.rescued() == []


# --- models and settings --------------------------------------------------------------------------------


def test_model_is_found_by_name_path_and_either_hash(store):
    one = record()
    store.put_model(one)
    for ref in ("digits", one.path, SHA, SHA[:6], one.sha256, one.sha256[:8], SHA[:6].upper()):
        assert store.model(ref) == one
    assert store.model("012345x") is None
    assert store.model("01234") is None
    assert store.models() == [one]


def test_ambiguous_reference_names_the_candidates(store):
    store.put_model(record())
    store.put_model(record("0123456789ab" + "0" * 52, path="/other.onnx"))
    with pytest.raises(StoreError, match=" 2 "):
        store.model("digits")
    with pytest.raises(StoreError, match=" 2 "):
        store.model(SHA[:8])


def test_another_model_at_the_same_path_takes_its_place(store):
    store.put_model(record(path="/m.onnx"))
    store.put_model(record("9" * 64, path="/m.onnx", name="new"))
    assert [one.name for one in store.models()] == ["new"]


def test_removed_model_is_gone_with_its_inspection(store):
    store.put_model(record())
    for path in (record().path, "/other.onnx"):
        store.put_info(path, {path: [1, 2, 3]}, cast(wire.ModelInfo, {"nodes": 3}))
    store.remove_model(SHA)
    assert store.models() == []
    assert store.cached_info(record().path) is None
    assert store.cached_info("/other.onnx") is not None


def test_inspection_is_kept_with_the_stamps_of_its_files(store):
    info = cast(wire.ModelInfo, {"nodes": 3})
    assert store.cached_info("/m.onnx") is None
    store.put_info("/m.onnx", {"/m.onnx": [1, 2, 3]}, info)
    store.put_info("/m.onnx", {"/m.onnx": [4, 5, 6]}, info)
    assert store.cached_info("/m.onnx") == ({"/m.onnx": [4, 5, 6]}, info)


def test_baseline_is_pinned_per_model_and_unpinned(store):
    store.pin_baseline("a", "t1")
    store.pin_baseline("b", "t2")
    store.pin_baseline("a", "t3")
    assert (store.baseline("a"), store.baseline("b"), store.baseline("c")) == ("t3", "t2", None)
    store.pin_baseline("a", None)
    assert store.baseline("a") is None


# --- the file -------------------------------------------------------------------------------------------


def test_file_of_a_newer_version_is_refused_and_not_touched(store):
    store.create_trial(trial())
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=rf" 99, .* {database.SCHEMA} ") as caught:
        Store(store.path)
    assert caught.value.hint
    assert store.path.read_bytes() == before
    assert sorted(path.name for path in store.folder.iterdir()) == ["ortune.db"]


def test_newer_version_that_only_its_journal_tells_is_refused_too(store):
    with closing(sqlite3.connect(store.path)) as reader, closing(sqlite3.connect(store.path)) as writer:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM trials").fetchall()  # holds back the checkpoint
        writer.execute("PRAGMA user_version = 99")
        writer.commit()
        with pytest.raises(StoreError, match=" 99, "):
            Store(store.path)


def test_database_of_another_program_is_refused_and_not_touched(tmp_path):
    path = tmp_path / "ortune.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id = 1234")
        db.execute("CREATE TABLE t (x)")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="program"):
        Store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database at all, but long enough " * 9, b"x", b"\0" * 4096])
def test_damaged_file_is_kept_aside_and_the_next_start_is_fresh(tmp_path, content):
    path = tmp_path / "ortune.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged") as caught:
        Store(path)
    (kept,) = tmp_path.glob("ortune.db.corrupt-*")
    assert kept.read_bytes() == content
    assert kept.name in caught.value.message
    assert Store(path).trials() == []


def test_two_damaged_files_in_one_second_are_both_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda _: "20260101-000000")
    path = tmp_path / "ortune.db"
    for content in (b"first wreck" * 20, b"second wreck" * 20):
        path.write_bytes(content)
        with pytest.raises(StoreError, match="damaged"):
            Store(path)
    assert sorted(kept.read_bytes()[:5] for kept in tmp_path.glob("*.corrupt-*")) == [b"first", b"secon"]


def test_overwritten_pages_are_noticed_at_the_start(store):
    for number in range(50):
        store.create_trial(trial(f"t{number}", result=result(latencies_s=[0.5] * 500)))
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with store.path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096 * 8))
    with pytest.raises(StoreError, match="damaged"):
        Store(store.path)
    assert not store.path.exists()
    assert len(list(store.folder.glob("ortune.db.corrupt-*"))) >= 1


def test_file_damaged_while_it_is_open_is_an_error_that_says_what_to_do(store):
    store.path.write_bytes(b"overwritten by something else" * 50)
    for companion in ("-wal", "-shm"):
        store.path.with_name(store.path.name + companion).unlink(missing_ok=True)
    with pytest.raises(StoreError, match="damaged") as caught:
        store.trials()
    assert type(caught.value) is StoreError
    assert caught.value.hint


def test_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "ortune.db").touch()
    assert Store(tmp_path / "ortune.db").trials() == []


def test_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        Store(tmp_path / "file" / "ortune.db")


def test_folder_in_the_place_of_the_file_is_an_error(tmp_path):
    (tmp_path / "ortune.db").mkdir()
    with pytest.raises(StoreError, match=r"ortune\.db"):
        Store(tmp_path / "ortune.db")


def test_store_that_is_locked_for_long_is_an_error(store, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="writing"):
            store.create_trial(trial())


def test_migration_brings_an_older_file_forward_once(tmp_path, monkeypatch):
    path = tmp_path / "ortune.db"
    Store(path).create_trial(trial())
    monkeypatch.setattr(
        database, "MIGRATIONS", (*database.MIGRATIONS, ("ALTER TABLE trials ADD COLUMN extra TEXT",))
    )
    later = database.SCHEMA + 1
    monkeypatch.setattr(database, "SCHEMA", later)
    assert Store(path).trial("aaaaaa000001") == trial()
    assert Store(path).trial("aaaaaa000001") == trial()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (later,)
        assert db.execute("SELECT extra FROM trials").fetchall() == [(None,)]


def test_store_of_the_first_format_keeps_its_trials(tmp_path, monkeypatch):
    path = tmp_path / "ortune.db"
    with closing(sqlite3.connect(path)) as db:
        for statement in database.MIGRATIONS[0]:
            db.execute(statement)
        db.execute("PRAGMA user_version = 1")
        db.execute(f"PRAGMA application_id = {database.APPLICATION_ID}")
        db.execute(
            "INSERT INTO trials VALUES ('aaaaaa000001', 'measure', 'COMPLETE', '{}', 'm', 'sha', 'key', 's',"
            " 'me', 1.0, 1.0, 2.0, NULL, '{\"batch_size\": 1}', 'f1', 'p')"
        )
        db.execute("INSERT INTO samples VALUES ('aaaaaa000001', '{\"latencies_s\": [0.5]}')")
        db.commit()
    store = Store(path)
    found = store.trial("aaaaaa000001")
    assert (found.state, found.comparison) == ("COMPLETE", "")
    assert found.result == {"batch_size": 1, "latencies_s": [0.5]}
    put_comparison(store, "race", ["cand", "base"])
    assert len(store.trials()) == 2


# the third format, whose samples are JSON text, as its version wrote it
FORMAT_3 = (
    """CREATE TABLE trials (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, spec TEXT NOT NULL,
        model_name TEXT NOT NULL, model_sha256 TEXT NOT NULL, key TEXT NOT NULL, study TEXT NOT NULL,
        owner TEXT NOT NULL, created_at REAL NOT NULL, started_at REAL, finished_at REAL,
        error TEXT, result TEXT, fingerprint TEXT NOT NULL, process TEXT NOT NULL DEFAULT '',
        comparison TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX trials_by_age ON trials (created_at)",
    "CREATE INDEX trials_by_key ON trials (key)",
    "CREATE INDEX trials_by_comparison ON trials (comparison) WHERE comparison <> ''",
    """CREATE TABLE samples (
        trial TEXT PRIMARY KEY REFERENCES trials (id) ON DELETE CASCADE, data TEXT NOT NULL)""",
    """CREATE TABLE models (
        content_sha256 TEXT PRIMARY KEY, sha256 TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL,
        source TEXT NOT NULL, note TEXT NOT NULL, info TEXT NOT NULL, created_at REAL NOT NULL,
        details TEXT NOT NULL)""",
    "CREATE TABLE inspections (path TEXT PRIMARY KEY, stamps TEXT NOT NULL, info TEXT NOT NULL)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE comparisons (
        id TEXT PRIMARY KEY, state TEXT NOT NULL, model_name TEXT NOT NULL, model_sha256 TEXT NOT NULL,
        contestants TEXT NOT NULL, protocol TEXT NOT NULL, created_at REAL NOT NULL, study TEXT NOT NULL,
        owner TEXT NOT NULL, started_at REAL, finished_at REAL, error TEXT, result TEXT,
        fingerprint TEXT NOT NULL, warnings TEXT NOT NULL, process TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX comparisons_by_age ON comparisons (created_at)",
    "CREATE TABLE self_tests (fingerprint TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL)",
    "CREATE INDEX self_tests_by_age ON self_tests (fingerprint, at)",
    """CREATE TABLE accuracies (
        id TEXT PRIMARY KEY, key TEXT NOT NULL, model_sha256 TEXT NOT NULL, model_name TEXT NOT NULL,
        spec TEXT NOT NULL, dataset TEXT NOT NULL, reply TEXT NOT NULL, scores_path TEXT NOT NULL,
        created_at REAL NOT NULL, fingerprint TEXT NOT NULL)""",
    "CREATE INDEX accuracies_by_key ON accuracies (key)",
    "CREATE INDEX accuracies_by_model ON accuracies (model_sha256, created_at)",
    "PRAGMA journal_mode = WAL",
    "PRAGMA user_version = 3",
    "PRAGMA application_id = 1330795605",  # "ORTU"
)
OLD_RAW: dict[str, Any] = {
    "latencies_s": [one for ns in range(15_000, 15_400) for one in [ns / 1e9] * 20],
    "warmup_latencies_s": [0.5, 0.1 + 0.2],
    "blocks": [{"round": 0, "at_s": 0.13098996099995475, "counters": {"gpu": None}, "flags": []}],
}


@pytest.fixture
def old_store(tmp_path):
    """Two trials of format 3: the first ended at 101 s, the second at 102 s."""
    path = tmp_path / "ortune.db"
    with closing(sqlite3.connect(path)) as db:
        for statement in FORMAT_3:
            db.execute(statement)
        for number, name in enumerate(["older1", "newer1"], 1):
            db.execute(
                "INSERT INTO trials VALUES (?, 'measure', 'COMPLETE', '{}', 'm', 'sha', 'key', 's', 'me',"
                " ?, ?, ?, NULL, '{\"batch_size\": 1}', 'f1', 'p', '')",
                (name, 90.0 + number, 95.0 + number, 100.0 + number),
            )
            db.execute(
                "INSERT INTO samples VALUES (?, ?)", (name, json.dumps(OLD_RAW, separators=(",", ":")))
            )
        db.commit()
    return path


def kinds_of_samples(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT trial, typeof(data) FROM samples ORDER BY rowid").fetchall()


def test_samples_of_an_older_version_are_read_as_they_stand_beside_new_ones(old_store):
    store = Store(old_store)
    assert [one.id for one in store.trials()] == ["newer1", "older1"]
    assert store.trial("older1").result == store.trial("newer1").result == {"batch_size": 1, **OLD_RAW}
    store.update_trial("newer1", result={"batch_size": 2, **OLD_RAW})
    assert kinds_of_samples(old_store) == [("older1", "text"), ("newer1", "blob")]
    assert store.trial("newer1").result == {"batch_size": 2, **OLD_RAW}
    with closing(sqlite3.connect(old_store)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (database.SCHEMA,)
    assert database.SCHEMA > 3  # a version that would not understand packed samples does not change the file


def test_pruning_packs_what_an_older_version_left_before_it_drops_anything(old_store):
    store = Store(old_store)
    as_text = len(json.dumps(OLD_RAW, separators=(",", ":")))
    would = store.prune(keep_bytes=as_text // 2, dry_run=True)
    assert (would.trials, would.compressed) == ((), 2)
    assert kinds_of_samples(old_store) == [("older1", "text"), ("newer1", "text")]
    done = store.prune(keep_bytes=as_text // 2)
    assert (done.trials, done.compressed, done.kept_bytes) == ((), 2, would.kept_bytes)
    assert done.kept_bytes < as_text // 4
    assert done.freed_bytes > as_text
    assert kinds_of_samples(old_store) == [("older1", "blob"), ("newer1", "blob")]
    assert store.trial("older1").result == store.trial("newer1").result == {"batch_size": 1, **OLD_RAW}


def test_pruning_by_age_of_an_older_version_drops_the_old_and_packs_the_rest(old_store):
    store = Store(old_store)
    would = store.prune(before=101.5, dry_run=True)
    done = store.prune(before=101.5)
    assert done.trials == would.trials == ("older1",)
    assert done.compressed == would.compressed == 1
    assert kinds_of_samples(old_store) == [("newer1", "blob")]
    assert store.trial("newer1").result == {"batch_size": 1, **OLD_RAW}


def test_damaged_samples_of_an_older_version_stay_for_a_person_to_look_at(old_store):
    with closing(sqlite3.connect(old_store)) as db:
        db.execute("UPDATE samples SET data = '{\"latencies_s\": [0.' WHERE trial = 'newer1'")
        db.commit()
    store = Store(old_store)
    with pytest.raises(StoreError, match="newer1"):
        store.trial("newer1")
    assert store.prune(keep_bytes=10**9).compressed == 1
    assert kinds_of_samples(old_store) == [("older1", "blob"), ("newer1", "text")]


def test_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ortune.db"
    Store(path).create_trial(trial())
    broken = ("ALTER TABLE trials ADD COLUMN extra TEXT", "this is no SQL")
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, broken))
        patch.setattr(database, "SCHEMA", database.SCHEMA + 1)
        with pytest.raises(StoreError):
            Store(path)
    assert Store(path).trial("aaaaaa000001") == trial()
    with closing(sqlite3.connect(path)) as db:
        assert "extra" not in [row[1] for row in db.execute("PRAGMA table_info(trials)")]


def test_processes_that_make_the_store_at_once_all_get_it(tmp_path):
    code = (
        "import sys; from pathlib import Path; from core.store import Store\n"
        "from core.evidence.measurement import Trial\n"
        "s = Store(Path(sys.argv[1]))\n"
        "for i in range(10):\n"
        "    s.create_trial(Trial(id=f'{sys.argv[2]}-{i}', kind='measure', state='FAIL', spec={},\n"
        "        model_name='m', model_sha256='', key='k', created_at=float(i)))\n"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "new" / "ortune.db"), str(number)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for number in range(4)
    ]
    assert [worker.wait(120) for worker in workers] == [0] * 4
    assert len(Store(tmp_path / "new" / "ortune.db").trials()) == 40


def test_home_is_named_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "own"))
    assert home() == tmp_path / "own"
    monkeypatch.delenv("ORTUNE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home() == tmp_path / "data" / "ortune"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".local" / "share" / "ortune"
