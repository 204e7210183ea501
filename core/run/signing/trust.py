"""The trust file: names of signers and their public keys, which this machine trusts.

A YAML file in the data folder, or the one in `ORTUNE_TRUST`. A file that other users can write is refused,
because whoever writes it decides which signatures count.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from core.run.signing.keys import check_name, fingerprint, public_bytes
from core.spec.strict_yaml import dump_yaml, load_strict
from core.wire.errors import SpecError, nearest, unwritable
from core.wire.files import expand_home, home, open_regular, written_whole
from core.wire.variables import TRUST

SCHEMA = 1
NAME = "trusted-keys.yaml"
_MOST_BYTES = 1 << 20
_LOCK_S = 10.0
_KEYS = ("public_key", "until", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """One row of the trust file."""

    name: str
    public_key: str
    until: str = ""  # last day on which it is trusted, in UTC: YYYY-MM-DD; empty: no end
    note: str = ""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the public key."""
        return fingerprint(self.public_key)

    def has_expired(self, today: date) -> bool:
        """Whether it is no longer trusted; the clock of this machine decides."""
        return bool(self.until) and today > date.fromisoformat(self.until)


def today() -> date:
    """Return the current day in UTC."""
    return datetime.now(UTC).date()


def trust_path(path: Path | None = None) -> Path:
    """Return the path of the trust file: `path`, else `ORTUNE_TRUST`, else in the data folder."""
    if path is not None:
        return path
    named = os.environ.get(TRUST, "").strip()
    return expand_home(named) if named else home() / NAME


def trusted_keys(path: Path | None = None) -> list[TrustedKey]:
    """Return the trusted keys by name; empty if there is no trust file and none is named.

    Raises:
        SpecError: the named file is missing, other users can write it, or a part of it is invalid.
    """
    place = trust_path(path)
    if not place.exists() and path is None and not os.environ.get(TRUST, "").strip():
        return []
    try:
        with open_regular(place) as file:
            _refuse_writable(place, os.fstat(file.fileno()))
            text = file.read(_MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"The trust file `{place}` cannot be read: {why}.", hint="Check the path.") from None
    _refuse_writable_folder(place)
    return _rows(load_strict(text), place)


def _refuse_writable(place: Path, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    mode = stat.S_IMODE(found.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SpecError(
            f"Other users can write the trust file `{place}` (mode {mode:04o}), so nothing in it counts.",
            hint=f"Check its content, then run `chmod 600 {place}`.",
        )
    if found.st_uid not in (0, os.geteuid()):
        raise SpecError(
            f"The trust file `{place}` belongs to another user (ID {found.st_uid}), so nothing in it counts.",
            hint="Use a file of your own, or one of root.",
        )


def _refuse_writable_folder(place: Path) -> None:
    """Refuse a folder in which others can replace the file; a sticky folder such as /tmp prevents that."""
    folder = place.resolve().parent
    mode = folder.stat().st_mode
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise SpecError(
            f"Other users can replace the trust file: its folder `{folder}` has mode "
            f"{stat.S_IMODE(mode):04o}.",
            hint=f"Run `chmod go-w {folder}`.",
        )


def _rows(data: Any, place: Path) -> list[TrustedKey]:
    if not isinstance(data, Mapping):
        raise _invalid(place, "it must have `schema` and `keys`")
    if data.get("schema") != SCHEMA:
        raise _invalid(place, f"its `schema` must be {SCHEMA}, but is `{data.get('schema')}`")
    keys = data.get("keys")
    if not isinstance(keys, dict) or set(data) - {"schema", "keys"}:
        raise _invalid(place, "it must have `schema` and `keys`, a mapping of names, and nothing else")
    found: dict[str, TrustedKey] = {}
    for name, row in sorted(keys.items(), key=lambda one: str(one[0])):
        one = _row(str(name), row, place)
        if one.public_key in found:
            raise _invalid(place, f"`{name}` and `{found[one.public_key].name}` have the same public key")
        found[one.public_key] = one
    return list(found.values())


def _row(name: str, row: Any, place: Path) -> TrustedKey:
    if not isinstance(row, dict) or set(row) - set(_KEYS) or "public_key" not in row:
        raise _invalid(place, f"`{name[:60]}` must have `public_key`, and may have `until` and `note`")
    try:
        public_bytes(str(row["public_key"]))
        until = row.get("until")
        return TrustedKey(
            name=check_name(name),
            public_key=str(row["public_key"]).strip(),
            until=_day(str(until)) if until is not None else "",
            note=str(row.get("note") or "")[:200],
        )
    except SpecError as error:
        raise _invalid(place, f"`{name[:60]}`: {error.message.rstrip('.')}") from None


def _invalid(place: Path, why: str) -> SpecError:
    return SpecError(
        f"The trust file `{place}` is invalid: {why}.",
        hint="Correct it, or write it with `ortune keys trust` and `ortune keys remove`.",
    )


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise SpecError(
            f"A day is written as YYYY-MM-DD, but got `{text[:40]}`.", hint="Use 2027-12-31."
        ) from None


# --- changes ------------------------------------------------------------------------------------------------


def add(
    name: str, public_key: str, *, until: str = "", note: str = "", path: Path | None = None
) -> TrustedKey:
    """Trust a public key under a name; the same name and key again change only `until` and `note`.

    Raises:
        SpecError: the name has another key, the key has another name, or a value is invalid.
    """
    public_bytes(public_key)
    one = TrustedKey(
        name=check_name(name),
        public_key=public_key.strip(),
        until=_day(until) if until else "",
        note=note[:200],
    )
    with _changing(path):
        known = _existing(path)
        for other in known:
            if other.name == name and other.public_key != one.public_key:
                raise SpecError(
                    f"`{name}` is trusted with another key, {other.fingerprint}.",
                    hint=f"Run `ortune keys remove {name}` first, or choose another name.",
                )
            if other.public_key == one.public_key and other.name != name:
                raise SpecError(f"This key is trusted already, as `{other.name}`.", hint="Use that name.")
        _write([*(other for other in known if other.name != name), one], path)
    return one


def remove(name: str, *, path: Path | None = None) -> TrustedKey:
    """Remove a name from the trust file, and return what it had.

    Raises:
        SpecError: there is no such name.
    """
    with _changing(path):
        known = _existing(path)
        found = next((one for one in known if one.name == name), None)
        if found is None:
            names = [one.name for one in known]
            raise SpecError(
                f"The trust file has no name `{name[:60]}`.{nearest(name, names)}",
                hint="See `ortune keys list`.",
            )
        _write([one for one in known if one is not found], path)
    return found


def _existing(path: Path | None) -> list[TrustedKey]:
    return trusted_keys(path) if trust_path(path).exists() else []


def _changing(path: Path | None) -> Any:
    """Hold the lock of the trust file."""
    place = trust_path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return FileLock(f"{place}.lock", timeout=_LOCK_S, mode=0o600).acquire()
    except Timeout:
        raise SpecError(f"Another process is changing `{place}`.", hint="Try again.") from None
    except OSError as error:
        raise unwritable(place, error) from None


def _write(keys: list[TrustedKey], path: Path | None) -> None:
    place = trust_path(path)
    rows = {
        one.name: {name: value for name in _KEYS if (value := getattr(one, name))}
        for one in sorted(keys, key=lambda one: one.name)
    }
    text = dump_yaml({"schema": SCHEMA, "keys": rows})
    try:
        with written_whole(place) as part:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise unwritable(place, error) from None
