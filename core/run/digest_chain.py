"""The chain of digests of a result: model, variant, result, measurements, and a YAML file or bundle.

Each link has the recorded digest and the digest of what is there now. A link that differs shows a change
of something; a missing one cannot be checked. Reads only; opens no model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.evidence.measurement import Trial
from core.run.bundle.opening import OpenedConfiguration, is_bundle, open_configuration
from core.run.named_files import named_files
from core.run.signing import SignatureCheck
from core.run.signing.checking import SignatureRule, check_path
from core.run.variants.records import lineage, variant_of
from core.spec import TrialSpec, spec_from_dict
from core.store import ModelRecord, Store
from core.wire.errors import MissingError, PrivateError, SpecError, StoreError
from core.wire.files import content_sha256, open_regular, sha256_of

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
    signature, kind = check_path(path, trust_file=trust_file), "bundle" if is_bundle(path) else "YAML file"
    try:
        with open_configuration(path, rule=SignatureRule(trust_file=trust_file)) as held:
            return _chain_of_opened(store, path, kind, held, signature)
    except SpecError as error:
        why = f"{error.message} {error.hint}".strip()
        return _chain(None, path.name, signature, [Link(name=kind, state="DIFFERS", why=why)])


def _chain_of_opened(
    store: Store, path: Path, kind: str, held: OpenedConfiguration, signature: SignatureCheck
) -> DigestChain:
    links: list[Link] = []
    trial = record = None
    trial_id = held.trial or None
    if trial_id is not None:
        try:
            links, trial, record = _stored(store, trial_id)
        except MissingError:
            links.append(_missing("result", f"Trial {trial_id} is not in this store."))
        except PrivateError as error:
            links.append(_missing("result", error.message))
    else:
        links.append(_missing("result", "The file names no trial."))
    links.append(_content(kind, held, trial, record))
    if kind == "bundle":
        links.append(_members(path))
    return _chain(trial_id, path.name, signature, links)


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


def _stored(store: Store, trial_id: str) -> tuple[list[Link], Trial | None, ModelRecord | None]:
    """The links in the store, the trial if it can be read, and its model."""
    rows = list(stored_links(store, trial_id))
    try:
        trial = store.trial(trial_id)
    except MissingError:
        raise
    except StoreError:  # its row or its measurements are damaged, and a link says so
        return [_missing("model", "The damaged result does not say which."), *rows], None, None
    record = store.model(trial.model_sha256) if trial.model_sha256 else None
    return [*_models(store, trial, record), *rows], trial, record


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


def _content(kind: str, held: OpenedConfiguration, trial: Trial | None, record: ModelRecord | None) -> Link:
    """Whether a file holds the model, settings and numbers of the stored result."""
    name = "YAML file" if kind == "YAML file" else "YAML in the bundle"
    if trial is None:
        return _missing(name, "There is no stored result to compare it with.")
    spec = spec_from_dict(trial.spec)
    told = _claims(held.spec, held.measured, held.spec.model.sha256)
    stored = _claims(spec, {**trial.facts, "p50_s": trial.p50_s}, record.sha256 if record else None)
    if record is None or held.spec.model.sha256 is None:
        told["model"] = stored["model"] = None
    return _compared(
        name,
        _digest(told),
        _digest(stored),
        "Its model, settings and numbers are those of the stored result.",
        f"It differs from the stored result: {', '.join(_differing(told, stored))}. Export it again.",
    )


def _claims(spec: TrialSpec, measured: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    latency = measured.get("latency")
    p50 = measured.get("p50_s") or (latency.get("p50_s") if isinstance(latency, Mapping) else None)
    contrasts = measured.get("contrasts")
    ratios = [
        [one.get(key) for key in ("ratio", "ratio_low", "ratio_high")]
        for one in (contrasts if isinstance(contrasts, list) else [])
        if isinstance(one, Mapping)
    ]
    paths = any(True for _ in named_files(spec.session))  # exported relative to the file
    settings = None if paths else spec.to_dict().get("session", {})
    return {"model": model, "settings": settings, "latency": p50, "speed-up": ratios}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [name for name in one if one[name] != other[name]]


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def _members(path: Path) -> Link:
    """The bundle itself; it was opened, so every member has its recorded digest."""
    with open_regular(path) as file:
        now = sha256_of(file)
    return Link(
        name="bundle",
        state="MATCHES",
        now=now,
        why="Every file in it has the digest that `bundle.json` records.",
    )
