"""The form of a dataset: its file, its rows, and the preprocessing of images.

`form` draws it and returns its `DatasetSpec`. The session keeps the values under a prefix: pages with the
same prefix share a dataset. A path may name files of the allowed folders only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from core.spec.datasets import DatasetSpec, dataset_from_dict
from core.store import home
from core.wire.errors import SpecError, TunerError
from dashboard import fields, messages, state
from dashboard.folders import allowed_path
from dashboard.server import upload

LABELLED = "dataset"  # prefix of the labelled data for accuracy
CALIBRATION = "calibration"  # prefix of the data for calibrating a quantization

SAMPLE = "sample_models/digits_test.npz"
SAMPLES: Mapping[str, tuple[str, str]] = {
    # prefix -> path and description
    LABELLED: (SAMPLE, "360 handwritten digits that the sample model `digits_cnn` has never seen."),
    CALIBRATION: (
        "sample_models/digits_calibration.npz",
        "240 handwritten digits that the sample model `digits_cnn` was trained on, for calibration.",
    ),
}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_FILLED = ("resize", "crop", "channels", "scale", "mean", "std")  # widgets of the preprocessing

FIRST_VALUES: Mapping[str, Any] = {  # name of a form value -> initial value
    "path": "",
    "kind": "auto",
    "split": "",
    "limit": None,
    "seed": 0,
    "part": "",
    "calibration_share": 0.25,
    "output": "",
    "positive_class": None,
    "threshold": 0.5,
    "resize": None,
    "crop": None,
    "channels": "auto",
    "scale": 1.0,
    "mean": "",
    "std": "",
}
_KINDS = {
    "auto": "detected",
    "npz": ".npz arrays",
    "folders": "folder per class",
    "csv": "CSV of paths and labels",
    "images": "images without labels",
}
_SPLITS = {"": "test if it exists", "train": "train", "val": "val", "test": "test"}
_PARTS = {
    "": "all samples",
    "calibration": "calibration part",
    "rest": "scoring part",
}
_CHANNELS = {"auto": "as the input", "rgb": "RGB", "bgr": "BGR", "gray": "gray"}

PREPARATIONS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    # name -> label, purpose, and the values that it sets apart from the defaults
    "unit": ("0 to 1", "Resized to the input, pixels divided by 255.", {}),
    "imagenet": (
        "ImageNet",
        "As for torchvision's classifiers: shorter side 256, centre 224, normalized RGB.",
        {
            "resize": 256,
            "crop": 224,
            "channels": "rgb",
            "mean": "0.485, 0.456, 0.406",
            "std": "0.229, 0.224, 0.225",
        },
    ),
    "bytes": ("0 to 255", "Resized to the input, bytes unchanged.", {"scale": 255.0}),
}


def key(prefix: str, name: str) -> str:
    """Return the key of one widget of the form."""
    return f"{prefix}.{name}"


# --- values <-> spec ----------------------------------------------------------------------------------------


def spec_from_values(values: Mapping[str, Any]) -> DatasetSpec | None:
    """Return the dataset of the form's values (by their names); None without a file.

    Raises:
        SpecError: an invalid value, or text that cannot be read.
    """
    have = {**FIRST_VALUES, **values}
    path = str(have["path"] or "").strip()
    if not path:
        return None
    return dataset_from_dict(
        {
            "path": path,
            "kind": have["kind"],
            "split": have["split"],
            "limit": _whole(have["limit"]),
            "seed": _whole(have["seed"]) or 0,
            "part": have["part"],
            "calibration_share": float(have["calibration_share"]),
            "output": have["output"],
            "positive_class": have["positive_class"],
            "threshold": float(have["threshold"]),
            "preprocessing": {
                "resize": _whole(have["resize"]),
                "crop": _whole(have["crop"]),
                "channels": have["channels"],
                "scale": float(FIRST_VALUES["scale"] if have["scale"] is None else have["scale"]),
                "mean": fields.numbers("mean", have["mean"]),
                "std": fields.numbers("std", have["std"]),
            },
        }
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def values_from_spec(spec: DatasetSpec) -> dict[str, Any]:
    """Return the form's values for `spec`: the inverse of `spec_from_values`."""
    own = {name: getattr(spec, name) for name in FIRST_VALUES if name not in _FILLED}
    done = {name: getattr(spec.preprocessing, name) for name in _FILLED}
    listed = {name: ", ".join(f"{one:g}" for one in done[name]) for name in ("mean", "std")}
    return {**own, **done, **listed}


def fill(prefix: str, spec: DatasetSpec) -> None:
    """Load `spec` into the widgets; call before they are drawn, or in a callback."""
    for name, value in values_from_spec(spec).items():
        st.session_state[key(prefix, name)] = value


def chosen_dataset(prefix: str) -> DatasetSpec | None:
    """Return the dataset of this session's form, drawn or not; None without a file.

    Raises:
        SpecError: see `spec_from_values`.
        ModelError: the file does not exist, or lies outside of the allowed folders.
    """
    spec = spec_from_values({name: _value(prefix, name) for name in FIRST_VALUES})
    if spec is None:
        return None
    path = allowed_path(spec.path, state.store(), folder=True)
    return spec.model_copy(update={"path": state.portable(str(path))})


def labelled_if_valid() -> DatasetSpec | None:
    """Return the labelled data of this session; None without any, or where the form would report an error."""
    try:
        return chosen_dataset(LABELLED)
    except TunerError:
        return None


def _value(prefix: str, name: str) -> Any:
    return st.session_state.get(key(prefix, name), FIRST_VALUES[name])


# --- the form -----------------------------------------------------------------------------------------------


def form(prefix: str, *, labels: bool = True, outputs: Sequence[str] = ()) -> DatasetSpec | None:
    """Draw the form and return its dataset; None, with the reason shown, when it is invalid.

    Args:
        prefix: of the keys, `LABELLED` or `CALIBRATION`.
        labels: whether the rows need labels.
        outputs: of the model, if the user may have to choose the one with the classes.
    """
    for name, value in FIRST_VALUES.items():
        st.session_state.setdefault(key(prefix, name), value)
    _file(prefix, labels=labels)
    _rows(prefix, outputs if labels else ())
    _images(prefix)
    try:
        spec = chosen_dataset(prefix)
    except TunerError as error:
        messages.report(error)
        return None
    if spec is None:
        st.caption(":material/info: No data are chosen yet: name a file, upload one, or take the sample.")
    return spec


def _file(prefix: str, *, labels: bool) -> None:
    layouts = (
        "`.npz` in MedMNIST's layout (`test_images`, `test_labels`), with `images` and `labels`, or with "
        "arrays named as the model's inputs; a folder with one folder of images for each class; a CSV of "
        "path and label."
    )
    st.text_input(
        "Labelled data on the server" if labels else "Data on the server",
        key=key(prefix, "path"),
        persist_state="session",
        placeholder=SAMPLES[prefix][0],
        help=f"{layouts}{'' if labels else ' Labels are not needed.'}",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Use sample data",
            key=key(prefix, "sample"),
            icon=":material/grid_on:",
            on_click=use_sample,
            args=(prefix,),
            help=SAMPLES[prefix][1],
        )
        with st.popover("Upload", icon=":material/upload:", key=key(prefix, "upload")):
            if not state.show_closed_reason():
                upload.uploader(
                    "Upload data",
                    key=key(prefix, "uploader"),
                    accept=",".join((".npz", ".csv", *IMAGE_SUFFIXES)),
                    hint="One .npz, or a .csv together with the images that it names.",
                    on_upload=lambda files: _uploaded(prefix, files),
                )


def use_sample(prefix: str) -> None:
    """Choose the sample data, and for calibration data also the labelled samples that belong to them."""
    _take(prefix, SAMPLES[prefix][0])
    if not _value(LABELLED, "path"):
        _take(LABELLED, SAMPLE)


def _take(prefix: str, path: str) -> None:
    st.session_state[key(prefix, "path")] = path


def _uploaded(prefix: str, files: Sequence[Path]) -> None:
    """Store uploaded data permanently and put their path into the form.

    Raises:
        SpecError: files that are not one dataset.
    """
    leading = [file for file in files if file.suffix.lower() in (".npz", ".csv")]
    if len(leading) > 1 or (len(files) > 1 and any(file.suffix.lower() == ".npz" for file in leading)):
        upload.discard(files)
        raise SpecError(
            f"These {len(files)} files are not one dataset.",
            hint="Upload one .npz, or one .csv with the images that it names, or images alone.",
        )
    kept = upload.keep(files, home() / "datasets")
    lead = next((file for file in kept if file.suffix.lower() in (".npz", ".csv")), None)
    _take(prefix, str(lead or (kept[0] if len(kept) == 1 else kept[0].parent)))


def _choice(prefix: str, name: str, label: str, options: Mapping[str, str], text: str) -> None:
    st.selectbox(
        label,
        list(options),
        key=key(prefix, name),
        format_func=options.__getitem__,
        persist_state="session",
        help=text,
    )


def _number(
    prefix: str, name: str, label: str, text: str, *, step: int | None = 1, placeholder: str | None = None
) -> None:
    st.number_input(
        label,
        step=step,
        key=key(prefix, name),
        placeholder=placeholder,
        persist_state="session",
        help=text,
    )


def _rows(prefix: str, outputs: Sequence[str]) -> None:
    with st.expander("Samples", icon=":material/filter_list:", key=key(prefix, "rows")):
        _choice(prefix, "kind", "Layout", _KINDS, "The layout of the file or folder.")
        text = "Split of an `.npz` in MedMNIST's layout. Score a model on samples that it was not trained on."
        _choice(prefix, "split", "Split", _SPLITS, text)
        text = (
            "Calibrate on one part and score on the other. A model looks better on data that "
            "it was calibrated on."
        )
        _choice(prefix, "part", "Part", _PARTS, text)
        if _value(prefix, "part"):
            st.number_input(
                "Calibration share",
                min_value=0.01,
                max_value=0.99,
                step=0.05,
                key=key(prefix, "calibration_share"),
                persist_state="session",
                help="Use the same share on both pages, so that no sample is in both parts.",
            )
        text = "Fewer samples take less time and give wider intervals. Class shares are kept."
        _number(prefix, "limit", "Sample limit", text, step=100, placeholder="all")
        _number(prefix, "seed", "Seed", "Selects the samples when a limit applies.")
        if len(outputs) > 1:
            _output(prefix, outputs)


def _output(prefix: str, outputs: Sequence[str]) -> None:
    chosen = _value(prefix, "output")
    if chosen and chosen not in outputs:  # of another model
        st.session_state[key(prefix, "output")] = ""
    st.selectbox(
        "Class output",
        ["", *outputs],
        key=key(prefix, "output"),
        format_func=lambda name: name or "the only one that can be",
        persist_state="session",
        help="The output with one score per class.",
    )


def _images(prefix: str) -> None:
    with st.expander("Image preprocessing", icon=":material/image:", key=key(prefix, "images")):
        st.caption(
            "Applies to all models and is part of the YAML. Arrays that fit an input are used as they are."
        )
        with st.container(horizontal=True, gap="xsmall"):
            for name, (label, purpose, _) in PREPARATIONS.items():
                st.button(
                    label,
                    key=key(prefix, f"prepare.{name}"),
                    help=purpose,
                    on_click=_prepare,
                    args=(prefix, name),
                )
        straight = "straight to the input's size"
        _number(prefix, "resize", "Shorter side (pixels)", "Bilinear.", placeholder=straight)
        text = "Cropped after resizing."
        _number(prefix, "crop", "Centre square (pixels)", text, placeholder="no crop")
        text = "Colour order. One channel is gray."
        _choice(prefix, "channels", "Channels", _CHANNELS, text)
        text = "1 divides by 255, as torchvision does; 255 leaves the bytes unchanged."
        _number(prefix, "scale", "What a pixel of 255 becomes", text, step=None)
        for name, what in (("mean", "Subtracted"), ("std", "Divided by")):
            st.text_input(
                f"{what}, per channel ({name})",
                key=key(prefix, name),
                persist_state="session",
                placeholder="nothing",
                help="Comma-separated values, after scaling.",
            )


def _prepare(prefix: str, name: str) -> None:
    wanted = PREPARATIONS[name][2]
    for one in _FILLED:
        st.session_state[key(prefix, one)] = wanted.get(one, FIRST_VALUES[one])
