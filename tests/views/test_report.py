"""Reports, the demonstration and following, on the pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.run.scheduler import Scheduler
from core.store import STORE_NAME, Store, library
from core.store.imported import Shelf
from core.store.library import inspect_cached, sample_models
from core.store.recorded import MARK_FILE
from core.wire.errors import SpecError
from dashboard import demo, following, state
from tests.views import invented
from tests.views.page import Add, Open, click, texts

PAGES = (
    "tune",
    "search",
    "compare",
    "curves",
    "profile",
    "why",
    "machine",
    "models",
    "variants",
    "accuracy",
    "scorecard",
    "history",
    "export",
    "graph",
)
STARTS = {  # page -> the button that would measure
    "tune": "run",
    "search": "search.run",
    "compare": "compare.run",
    "curves": "curves.run",
    "profile": "profile.run",
    "why": "why.run",
    "machine": "machine.test",
    "accuracy": "accuracy.run",
    "scorecard": "scorecard.run",
}


@pytest.fixture(scope="module")
def unpacked() -> Iterator[Path]:
    found = demo.unpack()
    for sample in sample_models():
        if sample.exists:
            inspect_cached(Store(found / STORE_NAME), Path(sample.path))
    yield found
    demo.remove(found)


@pytest.fixture
def recorded(home: Path, unpacked: Path) -> Path:
    """The home of this test holds the recording."""
    for part in ("artifacts", "accuracies"):
        shutil.copytree(unpacked / part, home / part)
    for name in (STORE_NAME, MARK_FILE):
        shutil.copyfile(unpacked / name, home / name)
    return home


# --- the demonstration --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_that_it_was_recorded_and_measures_nothing(
    page: str, recorded: Path, open_page: Open
) -> None:
    at = open_page(page)
    assert not at.error
    assert any("Recorded on" in one.value and "not measured here" in one.value for one in at.warning)
    if page in STARTS:
        button = at.button(key=STARTS[page])
        assert button.disabled


HARMLESS = ("preset.", "chip.", "reset.")  # keys of what changes the form of this browser only
WRITES = ("put_", "pin_baseline", "mark", "delete_", "update_", "create_", "prune")  # of a store
CACHES = ("put_info", "put_model")  # what a page remembers of the samples; `import_file` is watched, too


@pytest.fixture
def doings(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is started, written, deleted or sent to a worker, in words."""
    done: list[str] = []

    def note(name: str) -> Callable[..., Any]:
        def noted(*_: Any, **__: Any) -> Any:
            done.append(name)
            raise SpecError("This test does nothing.", hint="None.")

        return noted

    for name in vars(Store):
        if name.startswith(WRITES) and name not in (*CACHES, "marks"):
            monkeypatch.setattr(Store, name, note(f"store.{name}"))
    monkeypatch.setattr(Shelf, "put", note("shelf.put"))
    monkeypatch.setattr(Shelf, "delete", note("shelf.delete"))
    monkeypatch.setattr(Scheduler, "submit", note("submit"))
    monkeypatch.setattr(library, "check_loads", note("check_loads"))
    monkeypatch.setattr(library, "import_file", note("import_file"))
    return done


def address(page: str, recorded: Path) -> dict[str, str]:
    """The address of a page with a result on it, where one is needed for its buttons."""
    store = Store(recorded / STORE_NAME)
    if page == "why":
        pair = next(recorded.glob("artifacts/*/why-*.json"))
        return {"a": pair.stem.removeprefix("why-"), "b": pair.parent.name}
    if page == "history":
        return {"trial": store.trials(kind="measure")[0].id}
    return {"trial": store.trials(kind="profile")[0].id} if page == "profile" else {}


@pytest.mark.parametrize("page", PAGES)
def test_no_button_of_the_demonstration_starts_or_changes_anything(
    page: str, recorded: Path, open_page: Open, doings: list[str]
) -> None:
    query = address(page, recorded)
    at = open_page(page, **query)
    assert doings == []
    free = [one.key for one in at.button if not one.disabled and one.key]
    known = {one.key for one in at.button}
    off = [one for one in at.button if one.disabled]
    assert all(one.help for one in off if one.proto.type == "primary")  # the reason
    for key in free:
        if key.startswith(HARMLESS):
            continue
        at = open_page(page, **query)
        if key not in {one.key for one in at.button}:
            continue
        at.button(key=key).click().run()
        assert not at.exception, key
        assert doings == [], f"{key} on {page}"
        asked = [
            one.key
            for one in at.button
            if one.key not in known and one.proto.type == "primary" and not one.disabled
        ]
        assert not [one for one in asked if page in str(one)], f"{key} on {page} asks whether to do something"


def test_a_forgotten_button_is_found(
    recorded: Path, open_page: Open, doings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        state, "unless_closed", lambda help=None, *, off=False: {"disabled": off, "help": help}
    )
    at = open_page("history", **address("history", recorded))
    click(at, "history.star")
    assert doings == ["store.mark"]


def test_nothing_can_be_brought_in_during_the_demonstration(recorded: Path, open_page: Open) -> None:
    for page in ("models", "profile", "compare"):
        at = open_page(page)
        assert any("nothing is measured" in one.value for one in at.caption), page


def test_a_server_of_its_own_says_nothing_of_a_recording(open_page: Open, mlp: object) -> None:
    at = open_page()
    assert "Recorded on" not in texts(at)


# --- reports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["tune", "search", "compare", "curves", "why", "scorecard"])
def test_a_result_offers_its_report(
    page: str, recorded: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = next(recorded.glob("artifacts/*/why-*.json"))
    query = {"a": pair.stem.removeprefix("why-"), "b": pair.parent.name} if page == "why" else {}
    at = open_page(page, **query)
    assert not [one for one in at.code if "<details>" in one.value]  # nothing is made before it is opened
    _open_popovers(monkeypatch)
    at = open_page(page, **query)
    assert not at.error
    (shown,) = [one.value for one in at.code if "<details>" in one.value]
    assert "not measured here" in shown
    assert "per million" not in shown
    at.number_input(key=f"{page}.report.price").set_value(0.34).run()
    at.text_input(key=f"{page}.report.currency").set_value("EUR").run()
    (shown,) = [one.value for one in at.code if "<details>" in one.value]
    assert "EUR per million" in shown
    assert [one.label for one in at.get("download_button") if "HTML" in one.label] == ["Download HTML"]


def test_a_currency_that_is_none_is_said(
    recorded: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    _open_popovers(monkeypatch)
    at = open_page()
    at.number_input(key="tune.report.price").set_value(0.34).run()
    at.text_input(key="tune.report.currency").set_value(" ").run()
    assert any("A currency is a name" in one.value for one in at.error)


def _open_popovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody had opened the popover: AppTest cannot."""
    from streamlit.elements.lib.mutable_popover_container import PopoverContainer

    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(PopoverContainer, "open", always, raising=False)


# --- following ----------------------------------------------------------------------------------------------


def _presented(at: AppTest) -> str:
    click(at, "follow.present")
    return str(at.session_state[following.PRESENTING])


def test_a_follower_sees_the_page_and_the_form_of_the_presenter(open_page: Open, add_model: Add) -> None:
    model = add_model()
    presenter = open_page(model=model)
    token = _presented(presenter)
    presenter.number_input(key="knob.intra_op_num_threads").set_value(1).run()
    follower = open_page(follow=token)
    assert "You follow a presenter" in texts(follower)
    assert follower.session_state[state.MODEL] == model.content_sha256
    assert follower.number_input(key="knob.intra_op_num_threads").value == 1
    presenter.number_input(key="knob.intra_op_num_threads").set_value(2).run()
    assert follower.run().number_input(key="knob.intra_op_num_threads").value == 2


def test_what_a_follower_moves_goes_back(open_page: Open, mlp: object) -> None:
    presenter = open_page()
    token = _presented(presenter)
    follower = open_page(follow=token)
    follower.number_input(key="knob.batch_size").set_value(7).run()
    assert follower.run().number_input(key="knob.batch_size").value == 1


def test_a_follower_starts_nothing_and_changes_nothing(
    open_page: Open, add_model: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = add_model()
    spec = invented.spec_for(model)
    fingerprint = state.environment()["fingerprint"]
    trial = invented.put_measured(state.store(), model, spec, fingerprint=fingerprint)
    presenter = open_page(model=model, trial=trial.id)
    token = _presented(presenter)
    follower = open_page(follow=token)
    assert follower.button(key="run").disabled
    before = len(state.store().trials())
    follower.button(key="run").proto.disabled = False  # a message that no browser of ours sends
    follower.button(key="run").click().run()
    assert follower.button(key="pin").disabled
    monkeypatch.setattr(
        state, "unless_closed", lambda help=None, *, off=False: {"disabled": off, "help": help}
    )
    follower.run()
    follower.button(key="pin").click().run()
    assert follower.exception  # a `SpecError`, which the server draws as one
    assert len(state.store().trials()) == before
    assert state.store().baseline(model.content_sha256) is None


def test_a_follower_may_leave_and_is_told_when_it_is_over(open_page: Open, mlp: object) -> None:
    presenter = open_page()
    token = _presented(presenter)
    first, second = open_page(follow=token), open_page(follow=token)
    click(first, "follow.stop")
    assert "You follow a presenter" not in texts(first)
    assert not first.button(key="run").disabled
    click(presenter, "follow.end")
    second.run()
    assert "The presentation is over" in texts(second)
    assert "You follow a presenter" not in texts(second.run())


def test_a_token_that_nobody_gave_is_no_presentation(open_page: Open, mlp: object) -> None:
    at = open_page(follow="guessed")
    assert "The presentation is over" in texts(at)
    assert state.FOLLOWING not in at.session_state


def test_the_oldest_presentation_makes_room() -> None:
    found = following.Presentations()
    tokens = [found.begin("") for _ in range(following.MOST + 1)]
    assert found.find(tokens[0]) is None
    assert found.find(tokens[-1]) is not None


def test_a_presentation_ends_a_while_after_the_browser_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    found = following.Presentations()
    token = found.begin("one")
    monkeypatch.setattr(following.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(following.runtime, "exists", lambda: True)
    monkeypatch.setattr(following.runtime, "get_instance", _Gone)
    assert found.find(token) is not None
    now[0] = following.GRACE_S - 1
    assert found.find(token) is not None  # it may come back
    now[0] = following.GRACE_S + 1
    assert found.find(token) is None


class _Gone:
    def is_active_session(self, session: str) -> bool:
        return False
