"""The machine's corner of the sidebar: what it is, and who measures on it now."""

from __future__ import annotations

import streamlit as st

from core.errors import TunerError
from core.machine_queue import Entry
from dashboard import format, state

REFRESH_S = 5.0  # other servers and the command line measure too; a look into a folder costs nothing


def sidebar() -> None:
    """Draw the machine line and the live queue."""
    try:
        environment = state.environment()
    except TunerError as error:
        state.report(error)
        return
    cpu = environment["cpu"]
    versions = environment["libraries"]
    ort = next((v for name, v in versions.items() if name.startswith("onnxruntime")), "unknown")
    st.caption(
        f":material/developer_board: {format.plain(cpu['model'])}  \n"
        f"{cpu['usable']} of {cpu['logical']} CPUs worth using · "
        f"{format.size(environment['memory_bytes'])}  \n"
        f"ONNX Runtime {format.plain(ort)}"
    )
    for gpu in environment["gpus"]:
        st.caption(f":material/memory: {format.plain(str(gpu.get('name', 'GPU')))}")
    queue_line()


@st.fragment(run_every=REFRESH_S)
def queue_line() -> None:
    """Draw who measures now and who waits, on the whole machine."""
    entries = state.queue().entries()
    if not entries:
        st.badge("Nothing is being measured", icon=":material/bedtime:", color="gray")
        return
    for number, entry in enumerate(entries):
        _entry(entry, number)


def _entry(entry: Entry, number: int) -> None:
    if entry.running:
        st.badge("Measuring", icon=":material/speed:", color="green")
    else:
        st.badge(f"Waiting, place {number + 1}", icon=":material/hourglass_empty:", color="orange")
    st.caption(
        f"{format.plain(entry.what)}  \n{format.plain(entry.owner)}, since {format.when(entry.since)[11:]}"
    )
