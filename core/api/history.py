"""Lists stored trials: `history`, by model, grade, state, tags, changed settings and error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from core.api import arguments
from core.api.models import ModelLike, reference
from core.api.results import Result
from core.api.session import Session, clean_up, default_session
from core.evidence.measurement import Trial
from core.evidence.quality import trial_grade
from core.evidence.verdict import Grade
from core.show import documents
from core.show.setting_chips import changes_of
from core.show.sheets import Sheet
from core.show.sheets import history as sheets
from core.show.words import counted
from core.spec import spec_from_dict
from core.spec.settings import SETTINGS
from core.store import Query, Store, Tags, Visibility
from core.store.library import resolve_model
from core.wire.errors import SpecError, nearest

MAX_EXAMINED = 5000  # newest trials; a filter reads their results


LISTED = 20  # default number of trials


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Listed trials, newest first, and their tags."""

    trials: Sequence[Trial]
    tags: Mapping[str, Tags]  # by ID
    visibility: Mapping[str, Visibility]  # by ID, without those of nobody


@arguments.checked()
def history(
    *, model: ModelLike | None = None, limit: int = LISTED, session: Session | None = None, **conditions: Any
) -> Result[History]:
    """List trials, newest first.

    Args:
        model: only trials of this model: its name in the list; or see `tune`.
        limit: most trials to list.
        session: see `tune`.
        conditions: fields of `Filter`, for example `grade=["A", "B"]`, `starred=True`, `search="resnet"`.

    Raises:
        SpecError: a condition is invalid.
        ModelError: there is no such model.
    """
    session = session or default_session()
    store, wanted = session.store, _filter_of(conditions)
    of = reference(model, session)
    clean_up(store)  # marks trials of processes that were killed

    def read() -> History:
        trials = wanted.trials(store, limit=limit, **model_filter(store, of))
        ids = [one.id for one in trials]
        return History(trials=trials, tags=store.marks(ids), visibility=store.visibility(ids))

    def content(found: History) -> Sheet:
        listed = sheets.table(found.trials, found.tags, found.visibility)
        return Sheet(f"{counted(len(found.trials), 'trial')}", [listed, *sheets.rescued(store.rescued())])

    return Result(
        kind="history",
        id="",
        read=read,
        document=lambda found: documents.history(store, found.trials, found.tags, found.visibility),
        content=content,
    )


def _filter_of(conditions: Mapping[str, Any]) -> Filter:
    """Return the filter of keyword arguments.

    Raises:
        SpecError: there is no such condition, or a value is invalid.
    """
    known = [one.name for one in fields(Filter)]
    found: dict[str, Any] = {}
    for name, value in conditions.items():
        if name not in known:
            raise SpecError(
                f"There is no condition `{name[:40]}`.{nearest(name, known)}", hint=f"Use {', '.join(known)}."
            )
        if value is None:
            continue
        found[name] = _CONDITIONS.get(name, arguments.text)(name, value)
    return Filter(**found)


def _grades_text(name: str, value: object) -> str:
    return ",".join(arguments.texts(name, value))


_CONDITIONS: Mapping[str, arguments.Reader] = {  # how a condition is read; all others are text
    "grade": _grades_text,
    "state": arguments.choice("COMPLETE", "FAIL", "CANCELLED", "RUNNING", "WAITING", "DAMAGED"),
    "changed": arguments.texts,
    "labels": arguments.texts,
    "starred": arguments.switch,
    "archived": arguments.switch,
    "mine": arguments.switch,
}


def model_filter(store: Store, model: str | None) -> dict[str, str | None]:
    """Return the filter for a model: a listed name, else the model's content hash."""
    if model is None or model in store.model_names():
        return {"model_name": model, "model_sha256": None}
    record = store.model(model) or resolve_model(store, model)
    return {"model_name": None, "model_sha256": record.content_sha256}


# --- filters ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The conditions on a listed trial; None and empty: no condition."""

    grade: str | None = None  # several, separated by commas
    state: str | None = None  # "COMPLETE", "FAIL", "CANCELLED", "RUNNING", "WAITING" or "DAMAGED"
    changed: Sequence[str] = ()  # NAME or NAME=VALUE, all of them
    error: str | None = None  # part of the message
    starred: bool = False  # only trials with a star
    archived: bool = False  # include archived trials
    labels: Sequence[str] = ()  # all of them
    mine: bool = False  # only trials of the person of the store
    search: str = ""  # words that all occur in its description

    def __post_init__(self) -> None:
        """Refuse unknown grades and settings."""
        for one in self._grades:
            if one not in list(Grade):
                raise SpecError(f"`grade` takes A, B, C, D and F, but got `{one[:20]}`.", hint="Write A,B.")
        known = {setting.name for setting in SETTINGS}
        for text in self.changed:
            name, _ = _name_and_value(text)
            if _plain(name) not in known and "." not in name:
                raise SpecError(
                    f"There is no setting `{name[:60]}`.{nearest(_plain(name), known)}",
                    hint="Write for example `intra_op_num_threads=1`.",
                )

    @property
    def asked(self) -> bool:
        """Whether there is any condition."""
        return bool(self.grade or self.state or self.changed or self.error or self._by_tags)

    @property
    def _by_tags(self) -> bool:
        return bool(self.starred or self.archived or self.labels or self.search)

    @property
    def _grades(self) -> list[str]:
        return [one.strip().upper() for one in (self.grade or "").split(",") if one.strip()]

    def trials(
        self, store: Store, *, limit: int, model_sha256: str | None = None, model_name: str | None = None
    ) -> list[Trial]:
        """Return the newest trials that match."""
        damaged = self.state == "DAMAGED"  # found by a checksum, not a stored state
        by_content = bool(self.grade or self.changed or self.error or damaged)
        query = Query(
            model_sha256=model_sha256,
            model_name=model_name,
            states=[self.state] if self.state and not damaged else (),
            starred=self.starred,
            archived=self.archived,
            labels=self.labels,
            text=self.search,
            person=store.actor.person if self.mine else None,
        )
        found, _ = store.trial_page(query, limit=MAX_EXAMINED if by_content else limit)
        if not (damaged or not self.asked):  # other fields of a damaged row are unknown
            found = [one for one in found if one.state != "DAMAGED"]
        return [one for one in found if self.matches(one) and (one.state == "DAMAGED" or not damaged)][:limit]

    def matches(self, trial: Trial) -> bool:
        """Whether a trial matches, regardless of its state."""
        if self._grades and trial_grade(trial.result) not in self._grades:
            return False
        if self.error and self.error.lower() not in (trial.error or {"message": ""})["message"].lower():
            return False
        return not self.changed or self._has_changed(trial)

    def _has_changed(self, trial: Trial) -> bool:
        try:
            spec = spec_from_dict(trial.spec)
        except SpecError:  # of another version
            return False
        values = changes_of(spec)
        return all(
            _plain(name) in values and value in (None, values[_plain(name)])
            for name, value in map(_name_and_value, self.changed)
        )


def _name_and_value(text: str) -> tuple[str, str | None]:
    """Split `NAME=VALUE`, or `NAME VALUE` as the list shows it; `NAME` alone has no value."""
    name, separator, value = text.strip().partition("=" if "=" in text else " ")
    return name.strip(), value.strip() if separator else None


def _plain(name: str) -> str:
    """Return the table's name of a setting that may be written as an option or in short form."""
    plain = name.strip().removeprefix("--")
    named = {setting.flag.removeprefix("--"): setting.name for setting in SETTINGS}
    named |= {setting.short: setting.name for setting in SETTINGS}
    return named.get(plain, plain.replace("-", "_"))
