"""Quotas of the people file, and the use that counts against them."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.run import job_types
from core.spec.load import LoadSpec
from core.store import Actor, Change, ModelRecord, Store
from core.wire.errors import SpecError
from dashboard.server import people, people_file, quotas
from dashboard.server.people_file import Quotas
from dashboard.server.personal import PersonalScheduler
from dashboard.views.machine import usage
from docs.generator.environment import QUOTAS
from tests.unit.test_job_durations import SPEC
from tests.unit.test_sharing import ANNA, BEN, trial

ENGINEER, ADMIN = Actor(ANNA, sees_all=False), Actor(ANNA, sees_all=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "ortune.db")


def limit(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    monkeypatch.setattr(people, "quotas", lambda: Quotas(**limits))
    monkeypatch.setattr(quotas, "DISK_READ_S", -1.0)  # count at every call


def read(tmp_path: Path, section: str) -> Quotas:
    path = tmp_path / "people.toml"
    path.write_text(f'[people]\n"@example.org" = "engineer"\n{section}')
    path.chmod(0o600)
    return people_file.read(path).quotas


def test_limits_are_read_from_the_people_file(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Quotas()
    found = read(tmp_path, "[quotas]\nupload_bytes = 1_000\nmachine_s_per_day = 3600\n")
    assert found == Quotas(upload_bytes=1000, machine_s_per_day=3600)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("disk = 5", "`disk` is unknown"),
        ("disk_bytes = -1", "0 or more"),
        ("disk_bytes = true", "`True`"),
        ('disk_bytes = "5 GB"', "whole number"),
        ("disk_bytes = 1.5", "`1.5`"),
    ],
)
def test_what_is_no_limit_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(SpecError, match="line 4 ") as caught:
        read(tmp_path, f"[quotas]\n{line}\n")
    assert words in caught.value.message


def test_a_person_whose_machine_time_is_used_up_starts_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, machine_s_per_day=600)
    store.add_machine_time(ANNA, began=time.time() - 90_000, seconds=3000.0)  # before the last 24 hours
    store.add_machine_time(ANNA, began=time.time() - 90_000, seconds=3900.0)  # 300 s of it are within them
    store.add_machine_time(ANNA, began=time.time() - 4000, seconds=240.0)
    store.add_machine_time(BEN, began=time.time() - 4000, seconds=9000.0)
    quotas.check_start(store, ENGINEER)
    with pytest.raises(SpecError, match=r"10 min.* limit is 10 min"):
        quotas.check_start(store, ENGINEER, running_s=61.0)
    store.add_machine_time(ANNA, began=time.time() - 200, seconds=121.0)
    with pytest.raises(SpecError, match=r"11 min.* limit is 10 min") as caught:
        quotas.check_start(store, ENGINEER)
    assert "admin" in caught.value.hint
    quotas.check_start(store, ADMIN)


def test_machine_time_that_a_clock_ahead_recorded_does_not_count_and_deletes_none(store: Store) -> None:
    store.add_machine_time(ANNA, began=time.time() - 200, seconds=5.0)
    store.add_machine_time(ANNA, began=time.time() + 400 * 86_400, seconds=9000.0)
    store.add_machine_time(ANNA, began=time.time() - 100, seconds=61.0)
    assert store.machine_time(time.time() - 1000) == {ANNA: 66.0}


def test_disk_counts_raw_measurements_models_and_files_of_results(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = store.for_person(ANNA, sees_all=False)
    assert anna.disk_use() == {}
    anna.create_trial(trial("t1"))
    raw = store.disk_use()[ANNA]
    assert 0 < raw < 2000
    anna.artifact_path(trial("t1").id, "bundle.zip").write_bytes(b"x" * 10_000)
    content = "1" * 64
    folder = tmp_path / "models" / content
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "weights").write_bytes(b"x" * 5000)
    (folder / "link").symlink_to(tmp_path / "ortune.db")
    info = {"inputs": []}
    record = ModelRecord(
        content_sha256=content,
        sha256=content,
        name="m",
        path=str(folder / "m.onnx"),
        source="x",
        info=info,  # type: ignore[arg-type]
    )
    anna.put_model(record)
    used = store.disk_use()[ANNA]
    assert raw + 15_000 <= used < raw + 15_200  # a link counts as itself
    assert store.disk_use().keys() == {ANNA}
    limit(monkeypatch, disk_bytes=used + 1)
    quotas.check_start(store, ENGINEER)
    limit(monkeypatch, disk_bytes=used)
    with pytest.raises(SpecError, match=r"take .* KiB .*limit is") as caught:
        quotas.check_disk(store, ENGINEER)
    assert "Delete" in caught.value.hint
    anna.mark([trial("t1").id], Change(starred=True))  # what takes no space stays allowed
    anna.delete_trials([trial("t1").id])
    quotas.check_disk(store, ENGINEER)


def test_one_job_plans_a_day_at_most(store: Store) -> None:
    asked = LoadSpec(rates=tuple(range(1, 13)), duration_s=86_400)  # 12 rates of a day each
    job = job_types.load([job_types.Configuration(spec=SPEC, label="a")], asked)
    queue = SimpleNamespace(submit=lambda job, actor: "queued")
    with pytest.raises(SpecError, match=r"1,036,824 s.*86,400 s") as caught:
        PersonalScheduler(queue, ENGINEER).submit(job)  # type: ignore[arg-type]
    assert "fewer rates" in caught.value.hint
    assert PersonalScheduler(queue, ADMIN).submit(job) == "queued"  # type: ignore[arg-type]
    quotas.check_length(86_400.0, ENGINEER)
    quotas.check_length(None, ENGINEER)


def test_every_limit_is_documented() -> None:
    assert [name for name, _ in QUOTAS] == [one.name for one in fields(Quotas)]


def test_the_table_of_uses_is_sorted_by_machine_time(store: Store) -> None:
    found = usage.uses({ANNA: 10.0}, {BEN: 5, ANNA: 1}, {BEN: 7})
    assert [(one.person, one.machine_s, one.disk_bytes, one.waiting_bytes) for one in found] == [
        (ANNA, 10.0, 1, 0),
        (BEN, 0.0, 5, 7),
    ]
    assert "unlimited" in usage.limits(Quotas(disk_bytes=5))
