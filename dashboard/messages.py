"""Messages on a page: expected and unexpected failures, errors kept by a callback, and notices.

A callback cannot draw, so it keeps its error or notice in the session, and the next run of the page shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from core.store import Held, ModelRecord
from core.wire.errors import ErrorRecord, TunerError, record_from_error
from dashboard.format import plain

# keys of the session
NOTICE = "notice"  # a line to show once after the next rerun
ERROR = "error"  # an error of a callback, to show in the page

UNEXPECTED = "ORTune failed unexpectedly"
TITLES: Mapping[str, str] = {
    "SpecError": "These settings cannot be used",
    "ModelError": "The model cannot be used",
    "ProviderError": "An execution provider is not available",
    "WorkerError": "The worker process failed",
    "StoreError": "The result store has a problem",
    "MissingError": "This result does not exist here",
    "PrivateError": "This belongs to another person",
    "BudgetError": "The budget is too small for a number",
    "Cancelled": "Cancelled",
}


def report(error: TunerError | ErrorRecord, title: str = "") -> None:
    """Show an expected failure, as it was raised or as it is stored: its cause and its remedy.

    Args:
        error: the failure.
        title: the failed action; empty: named after the kind of error.
    """
    record = record_from_error(error) if isinstance(error, TunerError) else error
    hint = f"\n\n**What to do:** {plain(record['hint'])}" if record["hint"] else ""
    heading = title or TITLES.get(record["type"], "That did not work")
    st.error(plain(record["message"]) + hint, title=heading, icon=":material/error:")


def report_unexpected(error: Exception) -> bool:
    """Show an unexpected error of a page or callback; Streamlit has logged it, and draws nothing itself."""
    if isinstance(error, TunerError):
        report(error)
    else:
        st.error(
            f"{plain(type(error).__name__)}: {plain(' '.join(str(error).split())[:300])}\n\n"
            "**What to do:** reload the page. If it comes back, report it with the log of the server.",
            title=UNEXPECTED,
            icon=":material/bug_report:",
        )
    return True


def keep_error(error: TunerError | ErrorRecord, place: str = "") -> None:
    """Keep an error of a callback, which cannot draw, for `show_kept_error`.

    Args:
        error: the failure.
        place: name of the action that shows it; empty: the page's general place.
    """
    record = record_from_error(error) if isinstance(error, TunerError) else error
    st.session_state[ERROR] = {"error": record, "place": place}


def show_kept_error(place: str = "", title: str = "") -> None:
    """Show the error kept for `place`, once; `title` as in `report`."""
    kept = st.session_state.get(ERROR)
    if kept is None or kept["place"] != place:
        return
    del st.session_state[ERROR]
    report(kept["error"], title)


def warn_not_stored(found: Sequence[Held]) -> None:
    """Say which results a full disk keeps out of the store, and where they are."""
    if not found:
        return
    files = ", ".join(f"`{one.file}`" for one in found if one.file is not None)
    where = f"Until it can be, results of the last jobs are kept as {files}." if files else ""
    if any(one.file is None and one.row.state == "COMPLETE" for one in found):
        where += " What has no file is lost when this server ends."
    st.warning(
        plain(f"{found[0].why} {where}") + "\n\n**What to do:** free disk space, then reload the page.",
        icon=":material/save:",
    )


def notify(text: str) -> None:
    """Show `text` once, after the next rerun."""
    st.session_state[NOTICE] = text


def notify_added(record: ModelRecord, new: bool) -> None:
    """Say that a model was added, or that the library has its content already."""
    known = f"Already in the library as {record.name}: same content, by SHA-256. Nothing was added."
    notify(f"Added {record.name}." if new else known)


def show_notice() -> None:
    """Show the text of `notify`, if any; names in it stay literal."""
    if text := st.session_state.pop(NOTICE, None):
        st.toast(plain(text), icon=":material/check_circle:")
