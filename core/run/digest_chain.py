"""The chain of digests of a result: model, variant, result, measurements, and a YAML file or bundle.

Each link has the recorded digest and the digest of what is there now. A link that differs shows a change
of something; a missing one cannot be checked. Reads only; opens no model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.evidence.measurement import Trial
from core.evidence.streams import latency_words
from core.run.bundle.opening import OpenedConfiguration, is_bundle, open_configuration
from core.run.bundle.writing import KEPT, written_bundles
from core.run.export_source import with_best_batching
from core.run.named_files import named_files
from core.run.search import search_provenance
from core.run.signing import SignatureCheck
from core.run.signing.checking import SignatureRule, check_path
from core.run.signing.files import covered_sha256
from core.run.variants.records import lineage, variant_of
from core.spec import TrialSpec, spec_from_dict
from core.store import ModelRecord, Store
from core.wire.errors import MissingError, PrivateError, SpecError, StoreError
from core.wire.files import content_sha256, open_regular, sha256_of
from core.wire.units import utc_text

LinkState = Literal["MATCHES", "DIFFERS", "MISSING"]
State = Literal["INTACT", "BROKEN", "INCOMPLETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of the chain."""

    name: str
    state: LinkState  # MISSING: it cannot be checked here
    recorded: str = ""  # digest when it was recorded; empty: none
    now: str = ""  # digest of what is there now; empty: there is nothing
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestChain:
    """The chain of one result."""

    state: State  # BROKEN: a link differs; INCOMPLETE: none differs, but one is missing
    trial: str | None  # null: the file names none
    file: str | None  # the YAML file or bundle at the end; null: none given
    signature: SignatureCheck | None  # of the file
    links: list[Link]


def chain_of_trial(store: Store, ref: str) -> DigestChain:
    """Return the chain of a stored result.

    Raises:
        StoreError: there is no such trial.
    """
    trial_id = store.trial_id(ref)
    return _chain(trial_id, None, None, list(_stored(store, trial_id)[0]))


def chain_of_file(store: Store, path: Path, *, trust_file: Path | None = None) -> DigestChain:
    """Return the chain that ends in a YAML file or a bundle.

    Raises:
        SpecError: the file cannot be read.
    """
    kind = "bundle" if is_bundle(path) else "YAML file"
    try:
        with open_configuration(path, rule=SignatureRule(trust_file=trust_file)) as held:
            return _chain_of_opened(store, path, kind, held)
    except SpecError as error:
        why = f"{error.message} {error.hint}".strip()
        signature = check_path(path, trust_file=trust_file)
        return _chain(None, path.name, signature, [Link(name=kind, state="DIFFERS", why=why)])


def _chain_of_opened(store: Store, path: Path, kind: str, held: OpenedConfiguration) -> DigestChain:
    links: list[Link] = []
    trial = None
    trial_id = held.trial or None
    if trial_id is not None:
        try:
            links, trial = _stored(store, trial_id)
        except MissingError:
            links.append(_missing("result", f"Trial {trial_id} is not in this store."))
        except PrivateError as error:
            links.append(_missing("result", error.message))
    else:
        links.append(_missing("result", "The file names no trial."))
    links.append(_content(kind, held, store, trial))
    if kind == "bundle":
        links.append(_members(path, held, store, trial))
    return _chain(trial_id, path.name, held.signature, links)


def _chain(
    trial: str | None, file: str | None, signature: SignatureCheck | None, links: list[Link]
) -> DigestChain:
    return DigestChain(state=state_of(links), trial=trial, file=file, signature=signature, links=links)


def state_of(links: Iterable[Link]) -> State:
    """Return the state of a chain of these links."""
    states = {one.state for one in links}
    return "BROKEN" if "DIFFERS" in states else "INTACT" if states == {"MATCHES"} else "INCOMPLETE"


def _missing(name: str, why: str, recorded: str = "") -> Link:
    return Link(name=name, state="MISSING", recorded=recorded, why=why)


def _compared(name: str, recorded: str, now: str, same: str, other: str) -> Link:
    matches = recorded == now
    return Link(
        name=name,
        state="MATCHES" if matches else "DIFFERS",
        recorded=recorded,
        now=now,
        why=same if matches else other,
    )


# --- the store ----------------------------------------------------------------------------------------------


def _stored(store: Store, trial_id: str) -> tuple[list[Link], Trial | None]:
    """The links in the store, and the trial if it can be read."""
    rows = list(stored_links(store, trial_id))
    try:
        trial = store.trial(trial_id)
    except MissingError:
        raise
    except StoreError:  # its row or its measurements are damaged, and a link says so
        return [_missing("model", "The damaged result does not say which."), *rows], None
    record = store.model(trial.model_sha256) if trial.model_sha256 else None
    return [*_models(store, trial, record), *rows], trial


def stored_links(store: Store, trial_id: str) -> Iterator[Link]:
    """Yield the links of a stored result and its raw measurements."""
    names = {"result": "The stored result", "measurements": "The raw measurements"}
    found = store.digests(trial_id)
    for name, noun in names.items():
        if name not in found:
            yield _missing(name, f"{noun} are not in the store.")
            continue
        recorded, now = found[name]
        if not recorded:
            yield Link(name=name, state="MISSING", now=now, why="It was stored without a checksum.")
            continue
        verb = "is" if name == "result" else "are"
        yield _compared(
            name,
            recorded.removeprefix("1:"),
            now.removeprefix("1:"),
            f"{noun} {verb} as written.",
            f"{noun} {verb} not as written. Restore a backup with `ortune restore FILE`.",
        )


def _models(store: Store, trial: Trial, record: ModelRecord | None) -> Iterator[Link]:
    """The original and, if the result used a variant, the variant with its steps."""
    if record is None:
        yield _model_beside(trial)
        return
    variant = variant_of(record)
    if variant is not None:
        root = store.model(variant["root"])
        if root is None:
            yield _missing("model", "The original is not in the library.", variant["root"])
        else:
            yield _file_link("model", root, variant["root"])
    yield _file_link("model" if variant is None else "variant", record, trial.model_sha256)


def _model_beside(trial: Trial) -> Link:
    """The model of a trial that the library lacks: a sample, or a file that was only measured."""
    ref = trial.spec.get("model", {})
    recorded, path = str(ref.get("sha256") or ""), Path(str(ref.get("path") or ""))
    try:
        if not recorded or not path.is_file():
            return _missing("model", "The model is not in the library.", trial.model_sha256)
        if trial.model_sha256 not in ("", recorded):
            why = "The model is not in the library, so its external weights cannot be checked."
            return _missing("model", why, trial.model_sha256)
        with open_regular(path) as file:
            now = sha256_of(file)
    except OSError as error:
        return _missing("model", f"`{path}` cannot be read: {error.strerror or error}.", recorded)
    same = f"`{path.name}` is the measured file."
    return _compared("model", recorded, now, same, f"`{path}` was changed. Restore the measured file.")


def _file_link(name: str, record: ModelRecord, recorded: str) -> Link:
    try:
        now = _content_now(record)
    except OSError as error:
        return _missing(name, f"`{record.path}` cannot be read: {error.strerror or error}.", recorded)
    made = f" ({lineage(record)})" if name == "variant" else ""
    return _compared(
        name,
        recorded,
        now,
        f"`{record.name}` is the measured file{made}.",
        f"`{record.path}` was changed{made}. Restore the measured file.",
    )


def _content_now(record: ModelRecord) -> str:
    """Digest of a model's file and its external data as they are now."""
    path, external = Path(record.path), record.info["external_data"]
    with open_regular(path) as file:
        digest = sha256_of(file)
    found = []
    for one in external:
        with open_regular(path.parent / one["location"]) as file:
            found.append({**one, "sha256": sha256_of(file)})
    return content_sha256(digest, [(str(one["location"]), str(one["sha256"])) for one in found])


# --- the file -----------------------------------------------------------------------------------------------


def _content(kind: str, held: OpenedConfiguration, store: Store, trial: Trial | None) -> Link:
    """Whether a file states the model, settings, numbers and machine of the stored result."""
    name = "YAML file" if kind == "YAML file" else "YAML in the bundle"
    if trial is None:
        return _missing(name, "There is no stored result to compare it with.")
    told, known, unknown = _sides(held, store, trial)
    leaves = list(_leaves(told, known))
    other = [where for where, one, stored in leaves if stored is not _ABSENT and not _equal(one, stored)]
    unknown += [where for where, _, stored in leaves if stored is _ABSENT]
    now = _digest([(where, one) for where, one, _ in leaves])
    recorded = _digest([(where, stored) for where, _, stored in leaves])
    if other:
        why = f"It differs from the stored result: {_named(other)}. Export it again."
        return Link(name=name, state="DIFFERS", recorded=recorded, now=now, why=why)
    if unknown:
        why = f"The file or the stored result lacks what is needed to compare {_named(unknown)}."
        return Link(name=name, state="MISSING", recorded=recorded, now=now, why=why)
    why = "Its model, settings, numbers and machine are those of the stored result."
    return Link(name=name, state="MATCHES", recorded=now, now=now, why=why)


_ABSENT = "not stored"  # in the place of a value that the stored result does not hold
_STATED = ("accepted_breach",)  # of the exporter, not of the result


def _sides(
    held: OpenedConfiguration, store: Store, trial: Trial
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """What a file states, what the store holds of it in the same form, and what the file should state."""
    if not held.files:  # a bundle has the configuration that was asked for
        trial = with_best_batching(trial)
    spec = spec_from_dict(trial.spec)
    told, known = _comparable(held.spec, held), _comparable(spec, held)
    known["model"]["content_sha256"] = trial.model_sha256 or None
    has_weights = trial.model_sha256 not in ("", spec.model.sha256)
    lacking = []
    for name, needed in (("sha256", True), ("content_sha256", has_weights and not held.files)):
        if told["model"].get(name) is None:
            known["model"].pop(name, None)
            lacking += [f"model.{name}"] if needed else []
    measured = {name: one for name, one in held.measured.items() if name not in _STATED}
    told, known = _filled(told, known), _filled(known, told)
    told |= {"measured": measured, "environment": held.environment or {}}
    return told, known | _recorded(held, store, trial), lacking


def _recorded(held: OpenedConfiguration, store: Store, trial: Trial) -> dict[str, Any]:
    """The numbers and the machine of a stored result, in the form of an exported file."""
    facts: dict[str, Any] = {**trial.facts}
    short_load = isinstance(held.measured.get("load"), str)
    load, machine = facts.get("load"), facts.get("environment")
    numbers: dict[str, Any] = {
        **facts,
        **{"trial": trial.id, "kind": trial.kind, "state": trial.state, "error": trial.error},
        "at": None if trial.finished_at is None else utc_text(trial.finished_at),
        "p50_s": trial.p50_s,
        "latency_kind": latency_words(facts),
        "load": load["words"] if load and short_load else load,
        "found_by_search": search_provenance(store, trial),
    }
    if machine is not None:
        machine = {**machine, "effective_providers": facts.get("effective_providers")}
    return {"measured": numbers, "environment": machine or {}}


def _comparable(spec: TrialSpec, held: OpenedConfiguration) -> dict[str, Any]:
    """A spec as plain data, in which named files have no folders; without inputs that the bundle recorded."""
    named = {text for _, text in named_files(spec.session)} | {spec.model.path, spec.workload.feeds}
    named |= {spec.dataset.path} if spec.dataset is not None else set()

    def plain(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {str(name): plain(value) for name, value in one.items()}
        if isinstance(one, list | tuple):
            return [plain(value) for value in one]
        return re.split(r"[\\/]", one)[-1] if isinstance(one, str) and one in named else one

    found: dict[str, Any] = plain(spec.to_dict())
    found["model"].pop("path", None)
    if held.sample is not None and held.spec.workload.feeds != "random":
        for name in ("feeds", "feed_values", "image_mean", "image_std"):
            found.get("workload", {}).pop(name, None)
    return found


def _filled(told: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Add what only the other side has, as null: a setting that is left out has its default."""
    missing = {name: _filled({}, one) if isinstance(one, Mapping) else None for name, one in known.items()}
    both = {
        name: _filled(one, known[name])
        for name, one in told.items()
        if isinstance(one, dict) and isinstance(known.get(name), Mapping)
    }
    return missing | told | both


def _leaves(told: Any, known: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each value that a file states: where, and what the store holds there."""
    if isinstance(told, Mapping) and isinstance(known, Mapping):
        for name, one in told.items():
            yield from _leaves(one, known.get(name, _ABSENT), f"{where}.{name}" if where else str(name))
    elif isinstance(told, list) and isinstance(known, list | tuple) and len(told) == len(known):
        for one, stored in zip(told, known, strict=True):
            yield from _leaves(one, stored, where)
    else:
        yield where, told, known


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other) or _text(one) == _text(other)  # NaN equals no number, not even itself


def _named(places: Sequence[str]) -> str:
    """The first places of a file that have plain names; the file may be of a stranger."""
    plain = dict.fromkeys(one for one in places if re.fullmatch(r"[\w.-]{1,80}", one))
    named = [f"`{one}`" for one in plain][:_MOST_PLACES]
    more = len(dict.fromkeys(places)) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])])


_MOST_PLACES = 5


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, default=str)


def _digest(data: Any) -> str:
    return hashlib.sha256(_text(data).encode()).hexdigest()


def _members(path: Path, held: OpenedConfiguration, store: Store, trial: Trial | None) -> Link:
    """The bundle itself: its model and recorded inputs, and whether this store wrote its other files."""
    now = covered_sha256(path)
    if trial is None:
        return _missing("bundle", "There is no stored result to compare it with.")
    compared = [one for one in _members_compared(held, store, trial) if one[1]]
    if other := [name for name, recorded, found in compared if recorded != found]:
        why = f"It has another {other[0]} than the stored result. Export it again."
        return Link(name="bundle", state="DIFFERS", recorded="", now=now, why=why)
    if now not in written_bundles(store, trial.id):
        return Link(
            name="bundle",
            state="MISSING",
            now=now,
            why="The store has no record that it wrote exactly this bundle, so the script in it cannot be "
            "checked. Export it again.",
        )
    why = "Its model, its recorded inputs and its script are as this store wrote them."
    return Link(name="bundle", state="MATCHES", recorded=now, now=now, why=why)


def _members_compared(
    held: OpenedConfiguration, store: Store, trial: Trial
) -> Iterator[tuple[str, str, str]]:
    """Yield (name, SHA-256 in the store, SHA-256 in the bundle); the first is empty where it is not known."""
    assert held.folder is not None
    main = Path(held.spec.model.path).relative_to(held.folder).as_posix()
    record = store.model(trial.model_sha256) if trial.model_sha256 else None
    names = [str(one["location"]) for one in record.info["external_data"]] if record else []
    weights = {one.removeprefix("model/") for one in held.files if one.startswith("model/")} - {
        Path(main).name
    }
    if record is None or weights == set(names):
        in_order = names or sorted(weights)
        known = trial.model_sha256 if record or len(in_order) < 2 else ""
        found = content_sha256(held.files[main], [(one, held.files[f"model/{one}"]) for one in in_order])
        yield "model", known, found
    else:
        yield "model", trial.model_sha256, ""
    for name, kept in KEPT.items():
        for file in store.artifacts(trial.id, kept):
            with open_regular(file) as opened:
                yield "recorded input or output", sha256_of(opened), held.files.get(name, "")
