"""Pages of two people who are logged in: own results and shared ones, links to private ones, deletion."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from core.api import live
from core.evidence.measurement import Trial
from core.store import Actor, ModelRecord, Visibility, audit
from core.wire.errors import PrivateError, SpecError
from dashboard import state
from dashboard.server import people
from dashboard.server.people import Person
from dashboard.server.people_file import Quotas
from dashboard.views.tune import live_estimate
from tests.reading import tells
from tests.views import sample_results
from tests.views.page import Open, keys, texts
from tests.views.test_history import select, table

ANNA = Person("anna@example.org", "Anna", "engineer")
BEN = Person("ben@example.org", "Ben", "engineer")
ADMIN = Person("root@example.org", "Root", "admin")

Log = Callable[[Person], None]


@pytest.fixture
def log_in(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Become a person."""
    return lambda one: monkeypatch.setattr(people, "person", lambda: one)


def put(record: ModelRecord, created_at: float = 1_000_000.0) -> Trial:
    return sample_results.put_run(state.store(), record, fingerprint="f", created_at=created_at)


def shown(at) -> list[str]:  # type: ignore[no-untyped-def]
    return [str(one) for one in table(at)["Trial"]]


def test_without_login_nothing_of_people_is_drawn(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp)
    at = select(open_page("history"), 0)
    assert "history.share" not in keys(at)
    assert "history.mine" not in keys(at)
    assert "By" not in table(at)


def test_a_person_sees_own_results_and_shared_ones(open_page: Open, mlp: ModelRecord, log_in: Log) -> None:
    log_in(ANNA)
    hers = put(mlp, 1_000_000.0)
    log_in(BEN)
    his, private = put(mlp, 2_000_000.0), put(mlp, 3_000_000.0)
    at = select(open_page("history"), 0)
    at.button(key="history.share").click().run()
    assert state.store().visibility([private.id])[private.id] == Visibility(person=BEN.id, private=True)
    assert table(at)["By"].tolist() == [f"{BEN.id}, private", BEN.id, ANNA.id]
    at.toggle(key="history.mine").set_value(True).run()
    assert shown(at) == [private.id[:12], his.id[:12]]
    log_in(ANNA)
    at = open_page("history")
    assert shown(at) == [his.id[:12], hers.id[:12]]
    assert select(at, 0).button(key="history.share").disabled
    log_in(ADMIN)
    at = open_page("history")
    assert len(shown(at)) == 3
    at = select(at, 0)
    at.button(key="history.share").click().run()  # an admin shares it
    assert not state.store().visibility([private.id])[private.id].private


LINKED = ("tune", "history", "export", "graph", "load", "profile")


@pytest.mark.parametrize("page", LINKED)
def test_a_guessed_link_says_that_the_result_is_private(
    open_page: Open, mlp: ModelRecord, log_in: Log, page: str
) -> None:
    log_in(ANNA)
    put(mlp, 1_000_000.0)
    secret = put(mlp, 2_000_000.0)
    state.store().share([secret.id], private=True)
    log_in(BEN)
    at = open_page(page, trial=secret.id)
    assert tells(texts(at), "private", ANNA.id)


OF_OWN = [f"history.{name}" for name in ("delete", "star", "archive", "edit", "pin")]


def test_only_own_results_are_changed_and_deleted_and_admins_do_it_with_all(
    open_page: Open, mlp: ModelRecord, log_in: Log
) -> None:
    log_in(ANNA)
    hers = put(mlp)
    log_in(BEN)
    at = select(open_page("history"), 0)
    assert all(at.button(key=one).disabled for one in OF_OWN)
    with pytest.raises(PrivateError, match=ANNA.id):
        state.store().delete_finished([hers.id])
    for one in (ANNA, ADMIN):
        log_in(one)
        at = select(open_page("history"), 0)
        assert not any(at.button(key=name).disabled for name in OF_OWN)
    state.store().delete_finished([hers.id])
    assert state.store().trials() == []


def test_a_pinned_baseline_with_native_libraries_is_that_of_admins(
    open_page: Open, mlp: ModelRecord, log_in: Log
) -> None:
    log_in(ADMIN)
    native = sample_results.spec_for(mlp, provider_libraries=[f"libops.so@sha256:{'a' * 64}"])
    pinned = sample_results.put_measured(state.store(), mlp, native, fingerprint="f", created_at=1.0)
    put(mlp)  # the newest gives the settings
    state.store().pin_baseline(mlp.content_sha256, pinned.id)
    for one, said in ((ADMIN, True), (BEN, False)):
        log_in(one)
        assert tells(open_page(model=mlp).button(key="run").help, "pinned") == said


def test_a_job_belongs_to_the_person_who_starts_it_and_others_do_not_cancel_it(log_in: Log) -> None:
    from core.run import job_types

    log_in(ANNA)
    with state.queue().turn("a test", "holds the machine"):
        job = state.scheduler().submit(job_types.worker("environment", {}, what="hers"))  # type: ignore[arg-type]
        assert [one.person for one in state.queue().entries()] == ["", ANNA.id]
        log_in(BEN)
        with pytest.raises(SpecError, match=ANNA.id):
            state.scheduler().cancel(job)
        log_in(ADMIN)
        state.scheduler().cancel(job)
    status = state.scheduler().status(job)
    assert status is not None
    assert status.state == "CANCELLED"
    assert state.present_actor() == Actor(ADMIN.id, sees_all=True)


def test_each_wish_of_a_live_preview_is_asked_for_the_quota(
    open_page: Open, mlp: ModelRecord, log_in: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a preview runs already, which would serve it."""
    wishes: list[live.LiveRequest] = []
    monkeypatch.setattr(live.LiveRequests, "put", lambda self, wish: wishes.append(wish) or True)
    monkeypatch.setattr(people, "quotas", lambda: Quotas(machine_s_per_day=600))
    log_in(BEN)
    live_estimate._shared(state.present_actor()).wishes = live.LiveRequests()
    at = open_page("tune", model=mlp)
    at.toggle(key=live_estimate.ON).set_value(True).run()
    assert len(wishes) == 1
    state.store().add_machine_time(BEN.id, began=time.time() - 700, seconds=601.0)
    at.session_state["knob.intra_op_num_threads"] = 3
    at.run()
    assert len(wishes) == 1
    assert tells(texts(at), "limit is 10 min")


def test_an_admin_sees_what_each_person_uses(open_page: Open, mlp: ModelRecord, log_in: Log) -> None:
    log_in(ANNA)
    put(mlp)
    state.store().add_machine_time(ANNA.id, began=time.time() - 100, seconds=90.0)
    assert "Use per person" not in texts(open_page("machine"))
    log_in(ADMIN)
    at = open_page("machine")
    assert "Use per person" in texts(at)
    rows = next(one.value for one in at.dataframe if "Person" in one.value)
    assert rows["Person"].tolist()[0] == ANNA.id
    assert "90 s" in rows.iloc[0].tolist()
    assert tells(texts(at), "unlimited", "[quotas]")


def test_an_admin_saves_the_audit_log_and_is_told_when_it_cannot_be_written(
    open_page: Open, log_in: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit._State, "problem", "No space left on device")
    for one, sees in ((ANNA, False), (ADMIN, True)):
        log_in(one)
        at = open_page("machine")
        assert ("machine.audit" in keys(at)) is sees
        assert tells(texts(at), "audit log", "No space left on device") is sees
