"""Nothing of a private model reaches another person: by no page, link, text of the queue or presentation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core.api import fleet
from core.api.fleet_answers import listed
from core.api.upgrading import stored_upgrades
from core.run import job_types, upgrade
from core.run.job import Job, Queued
from core.store import Actor, ModelRecord
from core.wire.errors import PrivateError, SpecError
from dashboard import folders, form_state, presenting, state
from dashboard.pages import PAGES
from dashboard.server import live, people
from dashboard.views.tune import live_estimate
from dashboard.widgets import machine_line
from tests import fleet_runs, tiny_models
from tests.reading import tells
from tests.views import sample_results, test_live_estimate, test_people
from tests.views.page import Add, Open, texts
from tests.views.test_machine_upgrades import record as upgrade_record
from tests.views.test_people import ADMIN, ANNA, BEN, Log

NAME = "zzsecretnet"
ERROR = {"type": "ModelError", "message": f"The model `{NAME}` is gone.", "hint": "Put it back."}
log_in = test_people.log_in


@dataclass(frozen=True)
class Private:
    """What Anna made private."""

    model: ModelRecord
    content: str
    trial: str
    comparison: str
    study: str
    profile: str
    imported: str
    fleet: str
    signs: tuple[str, ...]  # of which none may reach others


# page -> query of a link to what is private: name -> field of `Private`
LINKS = {
    "tune": {"trial": "trial"},
    "compare": {"comparison": "comparison"},
    "search": {"study": "study"},
    "profile": {"trial": "profile"},
    "explain": {"baseline": "trial", "candidate": "profile"},
    "graph": {"trial": "trial"},
    "variants": {"variant": "content"},
    "history": {"trial": "trial"},
    "export": {"trial": "trial"},
    "load": {"trial": "trial"},
    "fleet": {"run": "fleet"},
}


@pytest.fixture
def secret(log_in: Log, add_model: Add, add_variant: Callable[..., ModelRecord], mlp: ModelRecord) -> Private:
    log_in(ANNA)
    store, fingerprint = state.store(), state.environment()["fingerprint"]
    model = add_model(lambda path: tiny_models.mlp(path, hidden=20), NAME)
    variant = add_variant(model, f"{NAME}_int8", hidden=24)
    measured = sample_results.put_compared(store, model, fingerprint=fingerprint)
    profile = sample_results.put_profile(store, model, sample_results.spec_for(model))
    study = sample_results.put_study(store, model, fingerprint=fingerprint)
    found = {"profile": {"nodes": []}, "summary": None, "format": "f", "sha256": "a" * 64}
    imported = store.shelf.put(found, name=f"{NAME}.json", at=1.0)
    run = fleet_runs.run({"h1": fleet_runs.compared({"a": (1.2, 1.19, 1.21)})})
    asked = fleet_runs.AskedModel(name=NAME, sha256=model.content_sha256, path=model.path)
    run = fleet_runs.keep(replace(run, questions=[replace(one, model=asked) for one in run.questions]))
    upgrade.put(store, upgrade_record(models=(NAME,), items=()), [model.path])
    store.share([model.content_sha256, imported.id], private=True)
    store.share([upgrade_record().id], private=True)
    sample_results.put_run(store, mlp, fingerprint=fingerprint)  # others see it
    return Private(
        model=model,
        content=model.content_sha256,
        trial=measured.trial.id,
        comparison=measured.comparison.id,
        study=study.id,
        profile=profile.id,
        imported=imported.id,
        fleet=run.id,
        signs=(NAME, model.sha256[:12], model.content_sha256[:12], variant.content_sha256[:12]),
    )


def sent(at: AppTest) -> str:
    """All that a browser receives of a page: texts, options, tables, plots and data of components."""
    return "\n".join(str(one.proto) for one in at._tree if getattr(one, "proto", None) is not None)


def told(at: AppTest, secret: Private) -> set[str]:
    """The signs of the private model in a page."""
    return {one for one in secret.signs if one in sent(at)}


SHOWN = ("tune", "compare", "search", "profile", "graph", "models", "history", "fleet", "variants", "machine")


@pytest.mark.parametrize("page", PAGES)
def test_no_page_tells_another_person_of_it(open_page: Open, log_in: Log, secret: Private, page: str) -> None:
    if page in SHOWN:  # else the test would pass by itself
        assert NAME in sent(open_page(page))
    log_in(BEN)
    assert told(open_page(page), secret) == set()


@pytest.mark.parametrize("page", LINKS)
def test_no_link_tells_another_person_of_it(open_page: Open, log_in: Log, secret: Private, page: str) -> None:
    log_in(BEN)
    query = {name: getattr(secret, field) for name, field in LINKS[page].items()}
    echoed = {one for one in secret.signs if any(value.startswith(one) for value in query.values())}
    assert told(open_page(page, **query), secret) <= echoed
    if page == "profile":
        assert told(open_page(page, imported=secret.imported), secret) == set()
    if page == "graph":  # a session that had the model when it became private
        assert told(open_page(page, model=secret.model), secret) == set()


def test_a_link_to_a_form_with_it_restores_nothing(open_page: Open, log_in: Log, secret: Private) -> None:
    with_it = {"model": secret.model.content_sha256, "variants.name": f"{NAME} int4"}
    assert form_state._write("0123456789abcdef", form_state._as_text(with_it))
    assert open_page("tune", form="0123456789abcdef").session_state["model"] == with_it["model"]
    log_in(BEN)
    at = open_page("tune", form="0123456789abcdef")
    assert told(at, secret) == set()
    assert at.session_state["model"] != with_it["model"]


def test_no_path_leads_another_person_to_its_files(
    open_page: Open, log_in: Log, secret: Private, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "has_login", lambda: True)
    monkeypatch.setenv("ORTUNE_MODELS", str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "link.onnx").symlink_to(secret.model.path)
    (copy := tmp_path / "shared" / "copy.onnx").write_bytes(Path(secret.model.path).read_bytes())
    before, folder = state.store().model(secret.content), Path(secret.model.path).parent
    spec = sample_results.spec_for(secret.model)
    feeds = spec.workload.model_copy(update={"feeds": str(folder)})
    specs = [spec, sample_results.spec_for(state.store().models()[0]).model_copy(update={"workload": feeds})]
    paths = [secret.model.path, str(folder), str(tmp_path / "shared" / "link.onnx")]
    for one in paths:
        assert folders.allowed_path(one, state.store(), folder=True)
    log_in(BEN)
    for one in [*paths, str(folder.parent)]:
        with pytest.raises(PrivateError):
            folders.allowed_path(one, state.store(), folder=True)
    for asked in specs:
        for one in (BEN, None):  # a job names the person; a page has its own
            with pytest.raises(PrivateError, match="private"):
                state.admit(asked, one)
    for one in [secret.model.path, str(copy)]:
        at = open_page("models")
        at.text_input(key="models.path").set_value(one).run()
        at.button(key="models.path_add").click().run()
        assert "private to another person" in at.error[0].value
        assert ANNA.id not in at.error[0].value
    log_in(ANNA)
    assert state.store().model(secret.content) == before
    assert state.store().visibility([secret.content])[secret.content].private


# --- the queue ----------------------------------------------------------------------------------------------


def jobs(secret: Private) -> list[Job]:
    """Jobs with rows, with a configuration alone, and with a text alone."""
    spec = sample_results.spec_for(secret.model)
    return [
        job_types.tune(spec, model_name=NAME),
        job_types.task(lambda run: {}, kind="scorecard", what="any", specs=[spec]),
        job_types.task(lambda run: {}, kind="transform", what=f"quantize {NAME}"),
    ]


def test_the_queue_names_a_private_job_to_its_person_and_admins_alone(log_in: Log, secret: Private) -> None:
    with state.queue().turn("a test", "holds the machine"):
        made = [state.scheduler().submit(one) for one in jobs(secret)]
        files = "".join(path.read_text() for path in state.queue().folder.glob("*.json"))
        assert NAME not in files
        assert all(one.private for one in state.queue().entries()[1:])
        seen = {}
        for one in (ANNA, ADMIN, BEN):
            log_in(one)
            actor = state.present_actor()
            assert actor is not None
            known = [state.scheduler().status(job) is not None for job in made]
            active = len(state.scheduler().active())
            seen[one.id] = str(machine_line._event("", actor)), known, active
        for job in made:
            state._scheduler().cancel(job)
    for one in (ANNA, ADMIN):
        text, known, active = seen[one.id]
        assert NAME in text
        assert ANNA.id in text
        assert (known, active) == ([True] * 3, 3)
    text, known, active = seen[BEN.id]
    assert NAME not in text
    assert ANNA.id not in text
    assert text.count("another person") == 3
    assert text.count("Waiting, place") == 3  # the order shows to all
    assert (known, active) == ([False] * 3, 0)


def test_a_job_that_becomes_private_while_it_waits_is_hidden_from_then_on(
    log_in: Log, mlp: ModelRecord
) -> None:
    log_in(ANNA)
    with state.queue().turn("a test", "holds the machine"):
        job = state.scheduler().submit(job_types.tune(sample_results.spec_for(mlp), model_name=mlp.name))
        log_in(BEN)
        assert state.scheduler().status(job) is not None
        assert mlp.name in str(machine_line._event("", Actor(BEN.id, sees_all=False)))
        log_in(ANNA)
        state.store().share([job], private=True)
        log_in(BEN)
        assert state.scheduler().status(job) is None
        assert mlp.name not in str(machine_line._event("", Actor(BEN.id, sees_all=False)))
        state._scheduler().cancel(job)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_becomes_private_while_it_is_watched_is_told_to_others_no_more(
    open_page: Open, log_in: Log, mlp: ModelRecord, elsewhere: bool
) -> None:
    log_in(ANNA)
    with state.queue().turn("a test", "holds the machine"):
        if elsewhere:  # another process measures it
            job = test_people.put(mlp).id
            state.store().update_trial(job, state="RUNNING")
        else:
            job = state.scheduler().submit(job_types.tune(sample_results.spec_for(mlp), model_name=mlp.name))

        def told() -> list[bool]:
            stream = live.STREAMS.find(job)
            assert stream is not None
            return [stream.for_reader(b"{}", one) == b"{}" for one in (ANNA, BEN, ADMIN, people.LOCAL)]

        log_in(BEN)
        open_page("tune", trial=job)
        assert told() == [True] * 4
        log_in(ANNA)
        state.store().share([job], private=True)
        assert told() == [True, False, True, True]
        log_in(BEN)
        assert tells(texts(open_page("tune", trial=job)), "private", ANNA.id)
        state._scheduler().cancel(job)


def test_a_live_preview_shows_its_estimates_to_its_person_alone(
    open_page: Open, log_in: Log, secret: Private, mlp: ModelRecord
) -> None:
    """Each person has a preview job: Anna's is of the private model, and Ben's of another."""

    def preview(model: ModelRecord) -> tuple[AppTest, str]:
        at = open_page("tune", model=model)
        at.session_state["knob.intra_op_num_threads"] = 3
        at.toggle(key=live_estimate.ON).set_value(True).run()
        return at, at.session_state[live_estimate.VISITOR]

    def estimate(model: ModelRecord) -> dict[str, Any]:
        spec = sample_results.spec_for(model, intra_op_num_threads=3)
        return test_live_estimate.told(spec, label=model.name)["told"][test_live_estimate.ME]

    def event(actor: Actor | None) -> str:
        spec = sample_results.spec_for(mlp, intra_op_num_threads=3)
        found = live_estimate._event(
            his_name, spec.key(), 0.02, str(spec.model.sha256), is_default=False, actor=actor
        )
        return str(found)

    def live_job() -> Queued:
        found = state._scheduler()._job(live_estimate._shared(state.present_actor()).job)
        assert found is not None
        return found

    with state.queue().turn("a test", "holds the machine"), ThreadPoolExecutor() as thread_without_session:
        hers, her_name = preview(secret.model)
        her_job = live_job()
        log_in(BEN)
        his, his_name = preview(mlp)
        actor = state.present_actor()
        his_job = live_job()
        assert (her_job.person, his_job.person) == (ANNA.id, BEN.id)  # each pays for the own preview
        assert state.scheduler().status(her_job.job.id) is None
        for moment, job, changes in (
            ("waits", her_job, {}),
            ("runs", her_job, {"state": "RUNNING", "live": {"told": {her_name: estimate(secret.model)}}}),
            ("shows", his_job, {"state": "RUNNING", "live": {"told": {his_name: estimate(mlp)}}}),
            ("failed", her_job, {"state": "FAIL", "live": None, "error": ERROR}),
        ):
            for name, value in changes.items():
                setattr(job, name, value)
            assert told(his.run(), secret) == set(), moment
            sent_later = thread_without_session.submit(event, actor).result()
            assert NAME not in sent_later + str(machine_line._event("", actor)), moment
            assert ("1.32" in sent_later) == (moment in ("shows", "failed"))
            log_in(ANNA)
            assert ("1.32" in sent(hers.run())) == (moment in ("runs", "shows"))
            log_in(BEN)
        her_job.state = his_job.state = "CANCELLED"
    assert not form_state._is_kept(live_estimate.VISITOR)  # a link would lead to the estimates


# --- files, fleets and presentations ------------------------------------------------------------------------


def test_imports_upgrades_and_fleet_runs_are_listed_for_its_person_alone(
    log_in: Log, secret: Private
) -> None:
    def counted() -> tuple[int, int, int]:
        store = state.store()
        return len(store.shelf.all()), len(stored_upgrades(store)), len(listed(store))

    assert counted() == (1, 1, 1)
    log_in(BEN)
    assert counted() == (0, 0, 0)
    log_in(ADMIN)
    assert counted() == (1, 1, 1)


def test_a_fleet_is_not_asked_about_it(log_in: Log, secret: Private) -> None:
    asked = fleet.Asked(command="search", model=secret.model.path, arguments=["--budget=30"])
    with pytest.raises(SpecError, match="private") as caught:
        fleet.ask([asked], session=state.session())
    assert "Share the model first" in caught.value.hint


@pytest.mark.parametrize("what", ["model", "result", "name"])
def test_a_presentation_of_it_withholds_the_page_contents(
    monkeypatch: pytest.MonkeyPatch, log_in: Log, secret: Private, what: str
) -> None:
    values: dict[str, Any] = {"protocol.wait_minutes": 3}
    values |= {
        "model": {"model": secret.model.content_sha256},
        "result": {"tune.shown": secret.trial},
        "name": {"variants.name": f"{NAME} fp16"},
    }[what]
    query = {"trial": secret.trial} if what == "result" else {}
    told_before: dict[str, Any] = {}
    for now, private in ((values, True), ({"protocol.wait_minutes": 3}, False)):
        token = presenting.presentations().begin("session")
        monkeypatch.setattr(st, "session_state", {presenting.PRESENTING: token, **now})
        monkeypatch.setattr(st, "query_params", query if private else {})
        monkeypatch.setattr(form_state, "collect", lambda now=now: now)
        presenting.tell("tune")
        place = presenting.presentations().find(token)
        assert place is not None
        assert place.withheld is private
        assert (place.values, place.query) == (told_before if private else now, {})
        assert ("private" in str(presenting._count(token))) is private


def test_the_page_machine_shows_the_queue_as_its_reader_may_see_it(
    open_page: Open, log_in: Log, secret: Private
) -> None:
    def rows() -> list[list[str]]:
        found = next(one.value for one in open_page("machine").dataframe if "Job" in one.value)
        return [list(map(str, row)) for row in found.itertuples(index=False)]

    with state.queue().turn("a test", "holds the machine"):
        job = state.scheduler().submit(jobs(secret)[0])
        hers = rows()
        log_in(BEN)
        his = rows()
        state._scheduler().cancel(job)
    assert hers[0][:2] == his[0][:2] == ["running", "holds the machine"]
    assert hers[1][1:3] == [f"measure {NAME}", ANNA.id]
    assert his[1][0] == hers[1][0] == "place 1"
    assert his[1][1:3] == ["a private job", "another person"]
    assert "unknown" in his[1][4]
