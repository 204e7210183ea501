"""Inputs of a run: sizes of the free dimensions, source of the values, fixed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from core import wire
from core.api.requests import Size, Source
from core.evidence import input_description
from core.show.words import SOURCE_WORDS
from core.spec.settings import trial_setting
from core.spec.settings.slider_stops import dim_stops
from core.spec.sizes import image_side
from core.store import ModelRecord, home
from core.wire.feeding import STRING
from dashboard import fields, format, state
from dashboard.server import upload
from dashboard.widgets.setting import help_text, one
from dashboard.widgets.slider import number_slider


def dims(record: ModelRecord) -> None:
    """Draw a size for each free dimension besides the batch, with the origin of each proposed size."""
    proposed = _proposed(record)
    for dim in fields.other_dims(record.info):
        is_side = bool(image_side(dim, record.info))
        with st.container(horizontal=True, wrap=False, vertical_alignment="bottom", gap="small"):
            number_slider(
                _size_label(dim, record.info) + (_FROM[proposed[dim].source] if dim in proposed else ""),
                fields.dim_key(dim),
                dim_stops(is_image_side=is_side),
                help=trial_setting("dims").help,
            )
    if any(found.source == "guess" for found in proposed.values()):
        st.caption(":material/help: The model has dynamic dimensions. Set the sizes that you will use.")
    for note in sorted({found.note for found in proposed.values() if found.note}):
        st.caption(f":material/warning: {format.plain(note)}")


GUESS_SUFFIX = " (a guess)"  # after the name of a size that is a guess
_FROM: Mapping[Source, str] = {
    **{"guess": GUESS_SUFFIX, "last run": " (last run)", "file": " (from the metadata)"},
    **{"names": " (usual)", "sum": " (the sum)", "others": ""},
}


def _proposed(record: ModelRecord) -> dict[str, Size]:
    """Return the proposed sizes."""
    sizes = state.sizes(record)
    return fields.as_proposed(st.session_state, sizes)  # type: ignore[arg-type] # keys of widgets


def _size_label(dim: str, info: wire.ModelInfo) -> str:
    side = image_side(dim, info)
    name = format.label(dim)
    return f"{side.capitalize()} ({name})" if side and side not in dim.lower() else f"Size of {name}"


def proposed_size_texts(record: ModelRecord) -> dict[Source, str]:
    """Describe the proposed sizes that a run would use, by their origin.

    Returns:
        "guess": "guessed: height 224 × width 224"; "file": "from the model's metadata: imgsz 640 × 640";
        "names": "usual: sequence 128"; without origins that no size has.
    """
    found = _proposed(record)
    in_file = list(dict.fromkeys(one.why for one in found.values() if one.source == "file"))
    texts: dict[Source, str] = {
        "guess": _sizes_text("guess", found, record),
        "file": ", ".join(in_file),
        "names": _sizes_text("names", found, record),
    }
    return {source: f"{_ORIGIN_WORDS[source]}: {text}" for source, text in texts.items() if text}


_ORIGIN_WORDS: Mapping[Source, str] = {
    "guess": "guessed",
    "file": SOURCE_WORDS["file"],
    "names": "usual",
}


def _sizes_text(source: Source, found: Mapping[str, Size], record: ModelRecord) -> str:
    sizes = {dim: one.size for dim, one in found.items() if one.source == source}
    return " × ".join(f"{image_side(dim, record.info) or dim} {size}" for dim, size in sizes.items())


_SOURCES = {fields.RANDOM: "Random", fields.NPZ: ".npz file", fields.IMAGES: "Images"}


def feeds(record: ModelRecord, effects: dict[str, str]) -> None:
    """Draw the choice of the source, and a fixed value for each input."""
    st.segmented_control(
        "Inputs",
        list(_SOURCES),
        key=fields.FEEDS_SOURCE,
        format_func=_SOURCES.__getitem__,
        required=True,
        help=help_text(trial_setting("feeds")),
        persist_state="session",
    )
    source = st.session_state[fields.FEEDS_SOURCE] or fields.RANDOM
    if source != fields.RANDOM:
        _feed_files(source)
    if source == fields.IMAGES:
        for name in ("image_mean", "image_std"):
            one(trial_setting(name), effects.get(name), record)
    text = any(info["dtype"] == STRING for info in record.info["inputs"])  # string inputs need values
    with st.expander("Fixed input values", icon=":material/push_pin:", key="group.values", expanded=text):
        for info in record.info["inputs"]:
            _fixed_value(info)


def _feed_files(source: str) -> None:
    what = (
        "Path of an `.npz` on the server"
        if source == fields.NPZ
        else "Path of an image or a folder on the server"
    )
    st.text_input(
        what,
        key=fields.FEEDS_PATH,
        persist_state="session",
        help="One array per input; the first axis is the batch."
        if source == fields.NPZ
        else "PNG, JPEG, BMP or WebP.",
    )
    accept = ".npz" if source == fields.NPZ else ".png,.jpg,.jpeg,.bmp,.webp"
    upload.uploader(
        "Or upload it",
        key=f"upload.{source}",
        accept=accept,
        hint="One .npz file." if source == fields.NPZ else "One or several images.",
        multiple=source == fields.IMAGES,
        on_upload=feeds_uploaded,
    )


def feeds_uploaded(files: Sequence[Path]) -> None:
    """Store uploaded input files permanently and set their path: one file, or the folder of several."""
    kept = upload.keep(files, home() / "feeds")
    st.session_state[fields.FEEDS_PATH] = str(kept[0] if len(kept) == 1 else kept[0].parent)


def _fixed_text(info: wire.InputInfo) -> None:
    """Draw the value of a string input, which has no random values."""
    st.text_area(
        f"{format.label(info['name'])} (text, {format.shape(info['shape'])})",
        key=fields.value_key(info["name"]),
        persist_state="session",
        height=90,
        placeholder="text",
        help=f"{trial_setting('feed_values').help} Text is required: one line for each sample, or a "
        'JSON list such as `["first", "second"]`.',
    )


def _fixed_value(info: wire.InputInfo) -> None:
    if info["dtype"] == STRING:
        _fixed_text(info)
        return
    random = st.session_state[fields.FEEDS_SOURCE] in (fields.RANDOM, None)
    usual = input_description.random_text(info) if random else "from the inputs"
    reason = info.get("range_reason", "")
    st.text_input(
        f"{format.label(info['name'])} ({info['dtype']}, {format.shape(info['shape'])})",
        key=fields.value_key(info["name"]),
        persist_state="session",
        placeholder=usual,
        help=trial_setting("feed_values").help
        + " Here: `16000`, `[1, 2]` or `random:0..30521`; empty: as above."
        + (f" By default it {format.plain(reason)}." if reason else ""),
    )
