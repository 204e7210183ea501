"""Reports, the demonstration and following, on the pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.run.scheduler import Scheduler
from core.run.signing import keys, trust
from core.run.signing.checking import sign_text
from core.show.escapes import md_plain
from core.show.export import export_yaml
from core.show.report import MAX_CURRENCY_LENGTH
from core.show.report.signed import section
from core.show.report.subjects import find
from core.show.sheets import Fact
from core.store import STORE_NAME, Store, library
from core.store.imported import Shelf
from core.store.library import inspect_cached, sample_models
from core.store.recorded import MARK_FILE
from core.wire.errors import SpecError
from core.wire.variables import TRUST
from dashboard import demo, presenting, state
from dashboard.demo import first_view
from dashboard.pages import PAGES
from dashboard.widgets import uploads
from tests.reading import tells
from tests.views import sample_results
from tests.views.page import Add, Open, click, icons, lines


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
    """The home of this test contains the recording."""
    for part in ("artifacts", "accuracies"):
        shutil.copytree(unpacked / part, home / part)
    for name in (STORE_NAME, MARK_FILE):
        shutil.copyfile(unpacked / name, home / name)
    return home


# --- the demonstration --------------------------------------------------------------------------------------


BRINGS = ("models", "profile", "compare")  # pages that take files of others
EVERYWHERE = ("draft.link", "glossary", "follow.present")  # beside every page, pressed on one of them
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
    if page == "explain":
        pair = next(recorded.glob("artifacts/*/why-*.json"))
        return {"a": pair.stem.removeprefix("why-"), "b": pair.parent.name}
    if page == "history":
        return {"trial": store.trials(kind="measure")[0].id}
    return {"trial": store.trials(kind="profile")[0].id} if page == "profile" else {}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_demonstration_says_that_it_was_recorded_and_no_button_starts_or_changes_anything(
    page: str, recorded: Path, open_page: Open, doings: list[str]
) -> None:
    query = address(page, recorded)
    at = open_page(page, **query)
    assert not at.error
    assert lines(at, state.recorded())
    assert all(one.disabled for one in at.button if one.key == ("run" if page == "tune" else f"{page}.run"))
    assert page not in BRINGS or lines(at, state.closed())
    assert not reports(at)  # nothing is made before it is opened
    assert doings == []
    off = [one for one in at.button if one.disabled]
    assert all(one.help for one in off if one.proto.type == "primary")  # the reason
    known = {one.key for one in at.button}
    shell = () if page == "tune" else EVERYWHERE
    for key in [one for one in free(at) if not one.startswith(HARMLESS) and one not in shell]:
        if key not in free(at):  # what was pressed before took it away
            at = open_page(page, **query)
        if key not in free(at):  # named after something that is new with every visit
            continue
        at.button(key=key).click().run()
        assert not at.exception, key
        assert doings == [], f"{key} on {page}"
        asked = [one.key for one in at.button if one.proto.type == "primary" and not one.disabled]
        asked = [one for one in asked if one not in known and page in str(one)]
        assert not asked, f"{key} on {page} asks whether to do something"


def test_the_demonstration_opens_on_a_clear_gain_with_its_settings(recorded: Path, open_page: Open) -> None:
    at = open_page()
    trial = state.store().trial(first_view.opening_id() or "")
    contrasts = state.store().comparison(trial.comparison).facts["contrasts"]
    [contrast] = [one for one in contrasts if one["candidate"] == trial.id]
    assert contrast["verdict"] == "FASTER"
    assert contrast["ratio_low"] > 1.1
    assert at.query_params["trial"] == trial.id
    assert at.session_state[state.MODEL] == trial.model_sha256
    assert not any("Settings differ" in one.value for one in at.markdown)
    assert not at.warning


def test_what_somebody_chose_stays_chosen_in_the_demonstration(recorded: Path, open_page: Open) -> None:
    other = next(one for one in Store(recorded / STORE_NAME).trials(kind="measure") if not one.study)
    at = open_page(trial=other.id)
    assert at.query_params["trial"] == other.id
    assert at.session_state[state.MODEL] == other.model_sha256


@pytest.mark.parametrize("page", ["search", "accuracy", "scorecard"])
def test_a_page_of_the_demonstration_takes_a_model_that_it_has_something_of_until_somebody_chooses(
    page: str, recorded: Path, open_page: Open
) -> None:
    seen = list(PAGES[page].recorded(Store(recorded / STORE_NAME)))
    assert open_page(page).session_state[state.MODEL] == seen[0]
    chosen = next(one for one in state.store().models() if one.content_sha256 not in seen)
    assert open_page(page, model=chosen).session_state[state.MODEL] == chosen.content_sha256


def free(at: AppTest) -> list[str]:
    """Keys of the buttons that can be pressed."""
    return [str(one.key) for one in at.button if not one.disabled and one.key]


def test_a_forgotten_button_is_found(
    recorded: Path, open_page: Open, doings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        state, "unless_closed", lambda help=None, *, off=False: {"disabled": off, "help": help}
    )
    at = open_page("history", **address("history", recorded))
    click(at, "history.star")
    assert doings == ["store.mark"]


def test_a_server_of_its_own_says_nothing_of_a_recording(open_page: Open, mlp: object) -> None:
    at = open_page()
    assert not state.recorded()
    assert not at.warning


# --- reports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["tune", "search", "compare", "sweep", "explain", "scorecard"])
def test_a_result_offers_its_report(
    page: str, recorded: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = next(recorded.glob("artifacts/*/why-*.json"))
    query = {"a": pair.stem.removeprefix("why-"), "b": pair.parent.name} if page == "explain" else {}
    _open_popovers(monkeypatch)
    at = open_page(page, **query)
    assert not at.error
    [shown] = reports(at)
    assert state.recorded() in shown
    assert "USD" not in shown
    at.number_input(key=f"{page}.report.price").set_value(0.34)
    at.text_input(key=f"{page}.report.currency").set_value("EUR").run()
    [shown] = reports(at)
    assert "EUR" in shown
    assert [one for one in at.get("download_button") if one.key == f"{page}.report.html"]


def reports(at: AppTest) -> list[str]:
    """The reports in Markdown that the page shows."""
    return [one.value for one in at.code if "<details>" in one.value]


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> keys.SigningKey:
    """A trusted key."""
    pytest.importorskip("cryptography")
    monkeypatch.setenv(TRUST, str(tmp_path / "trust.yaml"))
    keys.create("Ann", tmp_path / "ann.key")
    key = keys.open_key(tmp_path / "ann.key")
    trust.add("Ann", key.public_key)
    return key


@pytest.fixture
def with_report(recorded: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Tune with an open report."""
    _open_popovers(monkeypatch)
    return open_page()


def upload(at: AppTest, data: bytes, name: str = "best.yaml") -> AppTest:
    at.file_uploader(key="tune.report.file").set_value((name, data, "text/plain")).run()
    assert not at.exception
    assert not list((state.store().folder / "cache" / "verify").glob("*"))  # nothing is left
    return at


def test_a_report_states_the_signature_of_an_uploaded_file_as_the_command_does(
    with_report: AppTest, signer: keys.SigningKey, tmp_path: Path
) -> None:
    store = state.store()
    trial = store.trial(str(with_report.query_params["trial"]))
    valid = sign_text(export_yaml(trial), signer).encode()
    changed = valid.replace(b"measured:", b"measured: ", 1)
    assert changed != valid
    for data, told in ((valid, keys.fingerprint(signer.public_key)), (changed, "The signature is wrong")):
        [shown] = reports(upload(with_report, data))
        assert md_plain(told) in shown
        (tmp_path / "best.yaml").write_bytes(data)
        expected = section(find(store, [trial.id]), store, file=tmp_path / "best.yaml").parts
        for one in expected:
            if isinstance(one, Fact) and one.name != "digests":  # with the time of the check
                assert f"**{one.name}**: {md_plain(one.text)}" in shown
        assert ("a digest differs" in shown) == (data == changed)
        assert tells(" ".join(one.value for one in with_report.markdown), told)
    upload(with_report, valid, "![x](http://evil.example).yaml")
    assert "](http" not in reports(with_report)[0].replace("\\]", "")


@pytest.mark.parametrize("name", ["x.yaml", "x.zip"])
@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"PK\x03\x04", b"a: [", b"a: &a [*a]\n"])
def test_a_file_that_is_none_of_a_result_is_told(with_report: AppTest, name: str, data: bytes) -> None:
    at = upload(with_report, data, name)
    [shown] = reports(at)
    assert "a digest differs" in shown
    assert any("a digest differs" in one.value and "\n" in one.value for one in at.markdown)  # and why
    assert not at.error


def test_a_file_of_another_result_and_one_that_is_too_large_are_refused(
    with_report: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = str(with_report.query_params["trial"])
    other = next(one for one in state.store().trials(kind="measure") if one.id != own)
    upload(with_report, export_yaml(state.store().trial(other.id)).encode())
    assert tells(with_report.error[0].value, "best.yaml", other.id[:12])
    assert not reports(with_report)
    monkeypatch.setattr(uploads, "MOST_CHECKED_MB", 1)
    with_report.run()  # another limit is another field
    upload(with_report, b"x" * ((1 << 20) + 1))
    assert tells(with_report.error[0].value, "1.00 MiB")
    assert not reports(with_report)


def test_a_currency_that_is_none_is_said(
    recorded: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    _open_popovers(monkeypatch)
    at = open_page()
    at.number_input(key="tune.report.price").set_value(0.34)
    at.text_input(key="tune.report.currency").set_value(" ").run()
    assert tells(at.error[0].value, MAX_CURRENCY_LENGTH)


def _open_popovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody had opened the popover: AppTest cannot."""
    from streamlit.elements.lib.mutable_popover_container import PopoverContainer

    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(PopoverContainer, "open", always, raising=False)


# --- following ----------------------------------------------------------------------------------------------


def _presented(at: AppTest) -> str:
    click(at, "follow.present")
    return str(at.session_state[presenting.PRESENTING])


def test_a_follower_sees_the_page_and_the_form_of_the_presenter(open_page: Open, add_model: Add) -> None:
    model = add_model()
    presenter = open_page(model=model)
    token = _presented(presenter)
    presenter.number_input(key="knob.intra_op_num_threads").set_value(1).run()
    follower = open_page(follow=token)
    assert "co_present" in icons(follower)
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
    spec = sample_results.spec_for(model)
    fingerprint = state.environment()["fingerprint"]
    trial = sample_results.put_measured(state.store(), model, spec, fingerprint=fingerprint)
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
    assert len(follower.error) == 1
    assert not follower.exception
    assert len(state.store().trials()) == before
    assert state.store().baseline(model.content_sha256) is None


def test_a_follower_may_leave_and_is_told_when_it_is_over(open_page: Open, mlp: object) -> None:
    presenter = open_page()
    token = _presented(presenter)
    first, second = open_page(follow=token), open_page(follow=token)
    click(first, "follow.stop")
    assert "co_present" not in icons(first)
    assert not first.button(key="run").disabled
    click(presenter, "follow.end")
    second.run()
    assert icons(second).count("co_present") == 1  # that it is over
    assert not second.button(key="run").disabled
    assert "co_present" not in icons(second.run())


def test_a_token_that_nobody_gave_is_no_presentation(open_page: Open, mlp: object) -> None:
    at = open_page(follow="guessed")
    assert icons(at).count("co_present") == 1  # that it is over
    assert not at.button(key="run").disabled
    assert state.FOLLOWING not in at.session_state


def test_followers_are_told_that_a_measurement_began_and_ended() -> None:
    found = presenting.Presentations()
    token = found.begin("one")
    versions = []
    for measuring in (False, True, True, False):
        found.tell(token, "tune", {}, {}, measuring=measuring)
        place = found.find(token)
        assert place is not None
        versions.append(place.version)
    assert versions[0] < versions[1] == versions[2] < versions[3]


def test_no_presentation_ends_for_another_and_a_person_has_a_few() -> None:
    found = presenting.Presentations()
    first = found.begin("", "ann")
    for _ in range(1, presenting.MOST_OWN):
        found.begin("", "ann")
    with pytest.raises(SpecError, match=str(presenting.MOST_OWN)):
        found.begin("", "ann")
    others = [found.begin("") for _ in range(presenting.MOST - presenting.MOST_OWN)]
    with pytest.raises(SpecError, match=str(presenting.MOST)):
        found.begin("", "ben")
    assert found.find(first) is not None
    assert found.find(others[-1]) is not None
    found.end(first)
    assert found.find(found.begin("", "ann")) is not None


def test_a_presentation_beyond_the_most_is_refused_on_the_page(
    open_page: Open, mlp: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presenting, "MOST", 0)
    at = open_page()
    at.button(key="follow.present").click().run()
    assert len(at.error) == 1
    assert at.button(key="follow.present")


def test_a_presentation_ends_a_while_after_the_browser_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    found = presenting.Presentations()
    token = found.begin("one")
    monkeypatch.setattr(presenting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(presenting.runtime, "exists", lambda: True)
    monkeypatch.setattr(presenting.runtime, "get_instance", _Gone)
    assert found.find(token) is not None
    now[0] = presenting.GRACE_S - 1
    assert found.find(token) is not None  # it may come back
    now[0] = presenting.GRACE_S + 1
    monkeypatch.setattr(presenting, "MOST", 1)
    assert found.begin("two")  # it makes room
    assert found.find(token) is None


class _Gone:
    def is_active_session(self, session: str) -> bool:
        return False
