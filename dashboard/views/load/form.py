"""The form of a load test: the question, the traffic, the limits, and the sizes of requests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from core.spec.load import (
    MOST_RATE,
    PROCESSES,
    LoadSpec,
    Process,
    load_from_dict,
    parse_sizes,
    parse_time,
    process_named,
    sizes_text,
)
from core.store import ModelRecord, home
from core.wire.errors import SpecError, TunerError
from dashboard import fields, format, messages, state
from dashboard.folders import allowed_path
from dashboard.server import upload
from dashboard.views.load import chosen
from dashboard.widgets import collapsible
from dashboard.widgets.protocol import wait_for_quiet

Asked = Literal["traffic", "limit", "batching", "together", "streams"]
QUESTIONS: Mapping[Asked, str] = {
    "traffic": "Latency at a rate",
    "limit": "Highest rate",
    "batching": "Dynamic batching",
    "together": "Several models",
    "streams": "Streams",
}
ABOUT: Mapping[Asked, str] = {
    "traffic": "Latency of each configuration at each rate.",
    "limit": "The highest rate that keeps the limit, confirmed in a fresh process.",
    "batching": "The best maximum batch and delay at one rate.",
    "together": "What each model costs the others on this machine.",
    "streams": "Closed loop: throughput over the number of streams, on page Sweep.",
}

# session keys
QUESTION, RATES, LIMITS = "load.question", "load.rates", "load.limits"
DURATION, BUDGET = "load.duration_s", "load.budget_s"
ARRIVALS, ON, OFF = "load.arrivals", "load.on_s", "load.off_s"
FROM, STEPS, LOW = "load.from_percent", "load.steps", "load.low_percent"
ROWS, DIM = "load.rows", "load.dim"  # the second: + "." + name of the dimension
TIMEOUT, TRACE, TURNS, SEED = "load.timeout", "load.trace", "load.turns", "load.seed"
STREAMS, THREADS = "load.streams", "load.threads"

FIRST: Mapping[str, Any] = {
    QUESTION: "traffic",
    RATES: "100",
    LIMITS: "p99<=20ms",
    ARRIVALS: "poisson",
    ON: 1.0,
    OFF: 1.0,
    FROM: 10.0,
    STEPS: 5,
    LOW: 25.0,
    ROWS: "",
    TIMEOUT: "",
    TRACE: "",
    SEED: 0,
    STREAMS: "1, 2, 4",
    THREADS: "",
}  # the others are empty at first
DEFAULT_TURNS = 6  # where several configurations are compared
DEFAULT_BUDGET_S = 120.0
FIELD_PX = 124  # two fields fit in one row


def seed() -> None:
    """Give every field its first value."""
    for key, value in FIRST.items():
        st.session_state.setdefault(key, value)
    if st.session_state[QUESTION] not in QUESTIONS:
        st.session_state[QUESTION] = "traffic"


def question() -> Asked:
    """Return the chosen question."""
    found: Asked = st.session_state.get(QUESTION) or "traffic"
    return found


def draw(record: ModelRecord) -> None:
    """Draw the form; a value that cannot be read is reported under it."""
    seed()
    st.pills(
        "Question",
        list(QUESTIONS),
        key=QUESTION,
        format_func=lambda one: QUESTIONS[one],
        required=True,
        persist_state="session",
        help="  \n".join(f"**{label}**: {ABOUT[name]}" for name, label in QUESTIONS.items()),
    )
    asked = question()
    chosen.draw(record, others=asked == "together", single=asked in ("batching", "streams"))
    if asked == "streams":
        _streams()
    else:
        _traffic(asked)
    _advanced(record, asked)


def _streams() -> None:
    st.text_input(
        "Streams",
        key=STREAMS,
        persist_state="session",
        placeholder="1, 2, 4",
        help="Callers that wait for their answer before they ask again.",
    )
    st.text_input(
        "Intra-op threads",
        key=THREADS,
        persist_state="session",
        placeholder="those of the settings",
        help="Values of `intra_op_num_threads`, to vary both. Empty: only the streams vary.",
    )


def _traffic(asked: Asked) -> None:
    if asked == "limit":
        _budget()
    else:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.text_input(
                "Rates (requests/s)" if asked != "batching" else "Rate (requests/s)",
                key=RATES,
                width=FIELD_PX,
                persist_state="session",
                placeholder="100, 200",
                help=_RATES_HELP[asked],
            )
            st.number_input(
                "Duration (s)",
                value=None,
                step=10.0,
                format="%.6g",
                key=DURATION,
                width=FIELD_PX,
                persist_state="session",
                placeholder="30",
                help="Counted seconds of each run, after the warm-up.",
            )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            "Limits",
            key=LIMITS,
            width=FIELD_PX,
            persist_state="session",
            placeholder="none",
            help="For example `p99<=20ms`, `p99.9<=50ms` or `timeouts<=0.1%`; several with commas. "
            "Latency is from the scheduled arrival.",
        )
        st.selectbox(
            "Arrivals",
            ["poisson", "constant"] if asked == "limit" else list(PROCESSES),
            key=ARRIVALS,
            format_func=lambda one: str(one).capitalize(),
            width=FIELD_PX,
            persist_state="session",
            help="  \n".join(f"**{name.capitalize()}**: {about}." for name, about in PROCESSES.items()),
        )
    _arrivals()


_RATES_HELP: Mapping[Asked, str] = {
    "traffic": "One or several, with commas. Every configuration runs at every rate.",
    "limit": "",
    "batching": "Requests per second at which pairs of batch size and delay are compared.",
    "together": "One for each configuration, in their order.",
    "streams": "",
}


def _budget() -> None:
    st.number_input(
        "Time budget (s)",
        value=None,
        step=30.0,
        format="%.6g",
        key=BUDGET,
        persist_state="session",
        placeholder=f"{DEFAULT_BUDGET_S:g}",
        help="For the search of one configuration; the confirmation comes on top.",
    )


def _arrivals() -> None:
    """Draw the fields that the chosen arrivals have."""
    shown = {
        "bursts": ((ON, "On period (s)", 0.1), (OFF, "Off period (s)", 0.1)),
        "ramp": ((FROM, "From (% of the rate)", 5.0),),
        "steps": ((STEPS, "Steps", 1),),
        "diurnal": ((LOW, "Night (% of the day)", 5.0),),
    }.get(str(st.session_state[ARRIVALS]), ())
    if shown:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            for key, label, step in shown:
                st.number_input(
                    label,
                    step=step,
                    key=key,
                    width=FIELD_PX,
                    persist_state="session",
                    help=_ARRIVALS_HELP[key],
                )
    if st.session_state[ARRIVALS] == "trace":
        st.text_input(
            "Path of a trace on the server",
            key=TRACE,
            persist_state="session",
            placeholder="requests.csv",
            help="CSV with a column `time` (seconds or ISO 8601) and perhaps `rows`, or JSON Lines.",
        )
        upload.uploader(
            "Or upload it",
            key="load.trace.upload",
            accept=".csv,.jsonl,.ndjson,.json",
            hint="One CSV or JSON Lines file.",
            multiple=False,
            on_upload=_uploaded,
        )


_ARRIVALS_HELP: Mapping[str, str] = {
    ON: "Length of a burst.",
    OFF: "Length of the pause after it. The mean stays the rate.",
    FROM: "The rate at the start; it rises evenly to the rate.",
    STEPS: "Number of equally long steps up to the rate.",
    LOW: "The lowest rate of the day, as a share of the highest.",
}


def _uploaded(files: list[Path]) -> None:
    """Keep an uploaded trace permanently, so that the load test can be repeated."""
    [kept] = upload.keep(files, home() / "feeds")
    st.session_state[TRACE] = str(kept)


def _advanced(record: ModelRecord, asked: Asked) -> None:
    with collapsible.box("Advanced", key="load.advanced", icon="build") as box:
        if not box.open:
            return
        wait_for_quiet()
        if asked == "streams":
            return
        st.text_input(
            "Samples per request",
            key=ROWS,
            persist_state="session",
            placeholder="batch of the configuration",
            help="`4`, `1-8` (equally likely) or `1:0.7,8:0.3` (with weights).",
        )
        for dim in fields.other_dims(record.info):
            st.text_input(
                f"Size of {format.label(dim)}",
                key=f"{DIM}.{dim}",
                persist_state="session",
                placeholder="that of the configuration",
                help="`16-128` (equally likely) or `16:0.7,128:0.3` (with weights).",
            )
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.text_input(
                "Timeout",
                key=TIMEOUT,
                width=FIELD_PX,
                persist_state="session",
                placeholder="none",
                help="A request that waits longer is dropped and counted, for example `1s`.",
            )
            if asked == "traffic":
                st.number_input(
                    "Turns",
                    value=None,
                    step=1,
                    key=TURNS,
                    width=FIELD_PX,
                    persist_state="session",
                    placeholder=str(DEFAULT_TURNS if len(chosen.names()) > 1 else 1),
                    help="Runs of each configuration and rate, in fresh processes; each turn has its own "
                    "arrivals, the same for all.",
                )
            st.number_input(
                "Seed",
                step=1,
                key=SEED,
                width=FIELD_PX,
                persist_state="session",
                help="Of the arrivals. The same seed gives the same arrivals, scaled by the rate.",
            )


# --- what is asked ----------------------------------------------------------------------------------------


def asked_load(record: ModelRecord) -> LoadSpec:
    """Return the load test of the present values.

    Args:
        record: whose dimensions have fields.

    Raises:
        TunerError: a value that cannot be read or is out of range, or a trace outside of the allowed folders.
    """
    asked, held = question(), st.session_state
    if asked == "streams":
        raise SpecError("Streams are a sweep.", hint="Use the page Sweep.")
    process = process_named(str(held.get(ARRIVALS) or "poisson"))
    if asked == "limit" and process not in ("poisson", "constant"):
        process = "poisson"
    rates = [] if asked == "limit" else parse_rates(str(held.get(RATES) or ""))
    if process == "trace" and not str(held.get(RATES) or "").strip():
        rates = []
    turns = held.get(TURNS) if asked == "traffic" else None
    dims = {
        dim: parse_sizes(text, what=dim)
        for dim in fields.other_dims(record.info)
        if (text := str(held.get(f"{DIM}.{dim}") or "").strip())
    }
    rows, timeout = str(held.get(ROWS) or "").strip(), str(held.get(TIMEOUT) or "").strip()
    return load_from_dict(
        {
            "question": asked,
            "arrivals": _arrivals_data(process),
            "rates": rates,
            "duration_s": None if asked == "limit" else _optional(DURATION),
            "limits": [one.strip() for one in str(held.get(LIMITS) or "").split(",") if one.strip()],
            "timeout_s": parse_time(timeout, what="timeout") if timeout else None,
            "rows": parse_sizes(rows, what="samples per request") if rows else {},
            "dims": dims,
            "turns": None if turns is None else int(turns),
            "budget_s": _optional(BUDGET) if asked == "limit" else None,
            "seed": int(held.get(SEED) or 0),
        }
    )


def _optional(key: str) -> float | None:
    value = st.session_state.get(key)
    return None if value is None else float(value)


def _arrivals_data(process: Process) -> dict[str, Any]:
    """Return the arrivals with the fields that they have; raises `ModelError` for a trace that is missing."""
    typed = {key: value for key in FIRST if (value := st.session_state.get(key)) is not None}
    held = {**FIRST, **typed}
    own: Mapping[Process, dict[str, Any]] = {
        "bursts": {"on_s": float(held[ON]), "off_s": float(held[OFF])},
        "ramp": {"from_share": float(held[FROM]) / 100},
        "steps": {"steps": int(held[STEPS])},
        "diurnal": {"low_share": float(held[LOW]) / 100},
    }
    if process == "trace":
        return {"process": process, "path": str(allowed_path(str(held[TRACE]).strip(), state.store()))}
    return {"process": process, **own.get(process, {})}


def parse_rates(text: str) -> list[float]:
    """Read rates with commas between them: `100, 200`.

    Raises:
        SpecError: one is no number, or out of range.
    """
    rates = []
    for part in filter(None, (one.strip() for one in text.replace(";", ",").split(","))):
        try:
            rate = float(part)
        except ValueError:
            raise SpecError(
                f"`{part[:20]}` is no rate.", hint="Write requests per second, for example `100, 200`."
            ) from None
        if not 0.01 <= rate <= MOST_RATE:
            raise SpecError(
                f"A rate must be 0.01 to {MOST_RATE:,.0f} requests/s; got {part[:20]}.",
                hint="Write another one.",
            )
        rates.append(rate)
    return rates


def time_words(load: LoadSpec, count: int) -> str:
    """Return how long a load test takes: `2 rates × 2 configurations × 6 turns: about 13 min`.

    Args:
        load: the question.
        count: number of configurations.
    """
    if load.question == "limit":
        budget_s = load.budget_s or DEFAULT_BUDGET_S
        return f"At most {format.about(count * budget_s)}, and the confirmation."
    run_s = load.effective_duration_s + load.warmup_s
    if load.question == "batching":
        return f"Service times, a simulation, then up to 5 runs of {format.about(run_s)}."
    if load.question == "together":
        return f"Each alone, then together: about {format.about((count + 1) * run_s)}."
    rates, turns = max(1, len(load.rates)), load.turns or (DEFAULT_TURNS if count > 1 else 1)
    parts = [
        f"{number} {word}{'s' * (number != 1)}"
        for number, word in ((count, "configuration"), (rates, "rate"), (turns, "turn"))
        if number > 1
    ]
    text = f"about {format.about(count * rates * turns * run_s)}"
    return f"{' × '.join(parts)}: {text}." if parts else f"{text[:1].upper()}{text[1:]}."


# --- a linked load test -----------------------------------------------------------------------------------


def take(data: Mapping[str, Any]) -> None:
    """Fill the fields from the stored question of a load test, before they are drawn.

    Raises:
        SpecError: another version wrote it.
    """
    load = load_from_dict(data)
    held = dict(FIRST)
    held |= {
        QUESTION: load.question,
        RATES: ", ".join(f"{one:g}" for one in load.rates),
        LIMITS: ", ".join(one.text for one in load.limits),
        DURATION: load.duration_s,
        BUDGET: load.budget_s,
        ARRIVALS: load.arrivals.process,
        ON: load.arrivals.on_s,
        OFF: load.arrivals.off_s,
        FROM: 100 * load.arrivals.from_share,
        STEPS: load.arrivals.steps,
        LOW: 100 * load.arrivals.low_share,
        ROWS: sizes_text(load.rows) if load.rows else "",
        TIMEOUT: "" if load.timeout_s is None else f"{load.timeout_s:g}s",
        TRACE: load.arrivals.path,
        TURNS: load.turns,
        SEED: load.seed,
    }
    held |= {f"{DIM}.{dim}": sizes_text(sizes) for dim, sizes in load.dims.items()}
    for key, value in held.items():
        st.session_state[key] = value


def problem(record: ModelRecord) -> tuple[LoadSpec | None, TunerError | None]:
    """Return the load test of the present values, or why there is none."""
    try:
        return asked_load(record), None
    except TunerError as error:
        return None, error


def report(error: TunerError) -> None:
    """Show why a load test cannot start."""
    messages.report(error, "This load test cannot start")
