"""Licences of what ORTune requires, and which of them software under Apache-2.0 may require.

Metadata state a licence as an SPDX expression, as classifiers, or as free text. The tables name each accepted
statement; every other one is refused, so that a new dependency is looked at before it is required.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from email.message import Message
from typing import cast

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ACCEPTED = frozenset(
    {
        *(
            "0BSD",
            "BSD-2-Clause",
            "BSD-3-Clause",
            "BSL-1.0",
            "CC0-1.0",
            "HPND",
            "ISC",
            "MIT",
            "MIT-0",
            "MIT-CMU",
        ),
        *("Apache-2.0", "Apache-2.0 WITH LLVM-exception", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
        "MPL-2.0",  # its terms hold for changed files of the package only, and ORTune changes none
    }
)
ACCEPTED_TEXTS = frozenset(
    {
        *("Apache Software License", "Apache 2.0", "Apache License 2.0"),
        *("BSD License", "BSD", "3-Clause BSD License", "ISC License (ISCL)", "MIT License"),
        "Mozilla Public License 2.0 (MPL 2.0)",
    }
)
APPROVALS = ("OSI Approved", "DFSG approved")  # classifiers that name no licence
NVIDIA = "proprietary, redistributable: PyTorch's CUDA build requires it; the extra `pytorch` only"
BY_NAME = {  # distribution: why it may be required, although its metadata state no accepted licence
    **dict.fromkeys(
        (
            *(
                "cuda-toolkit",
                "nvidia-cublas",
                "nvidia-cuda-cupti",
                "nvidia-cuda-nvrtc",
                "nvidia-cuda-runtime",
            ),
            *("nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-cufile", "nvidia-curand", "nvidia-cusolver"),
            *("nvidia-cusparse", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13", "nvidia-nvjitlink"),
            *("nvidia-nvshmem-cu13", "nvidia-nvtx"),
        ),
        NVIDIA,
    ),
    "mlcommons-loadgen": "no licence in its metadata; MLPerf Inference, its project, is under Apache-2.0",
}

# what those may state: another statement is looked at before it is accepted
BY_NAME_TEXTS = frozenset(
    {"LicenseRef-NVIDIA-Proprietary", "NVIDIA Proprietary Software", "Other/Proprietary License"}
)
_COPYLEFT = re.compile(r"GPL|General Public License", re.IGNORECASE)


class UnknownLicence(Exception):
    """A distribution states no licence."""


def required(wanted: Iterable[Requirement]) -> dict[str, importlib.metadata.Distribution]:
    """Return the installed distributions that requirements name, and all that those require here.

    Raises:
        importlib.metadata.PackageNotFoundError: one is not installed.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    pending = [(one, "") for one in wanted]
    while pending:
        requirement, by_extra = pending.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": by_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found[name] = found.get(name) or importlib.metadata.distribution(name)
            pending += [(Requirement(text), extra) for text in found[name].requires or []]
    return found


def direct(distribution: importlib.metadata.Distribution) -> set[str]:
    """Return the names that a distribution requires here, without extras."""
    found = (Requirement(text) for text in distribution.requires or [])
    return {
        canonicalize_name(one.name) for one in found if not one.marker or one.marker.evaluate({"extra": ""})
    }


def stated(about: Message) -> list[str]:
    """Return the licence that metadata state: an SPDX expression, else classifiers, else a text's first line.

    A text beside classifiers, often a whole licence, counts if its first line names a GNU licence.

    Raises:
        UnknownLicence: they state none.
    """
    if expression := about.get("License-Expression"):
        return [expression]
    text = (about.get("License") or "").strip().partition("\n")[0]
    classifiers = [one.split(" :: ") for one in about.get_all("Classifier", [])]
    if found := [parts[-1] for parts in classifiers if parts[0] == "License" and parts[-1] not in APPROVALS]:
        return [*found, text] if _COPYLEFT.search(text) else found
    if text:
        return [text]
    raise UnknownLicence(f"{about['Name']} states no licence.")


def accepted(statement: str) -> bool:
    """Whether software under Apache-2.0 may require what is under this licence."""
    if statement in ACCEPTED_TEXTS:
        return True
    try:
        expression = canonicalize_license_expression(statement)
    except InvalidLicenseExpression:
        return False
    joined = re.sub(r" WITH ", "+WITH+", expression)
    tokens = iter(re.findall(r"[()]|[^\s()]+", joined))
    return _any(tokens)


def _any(tokens: Iterator[str]) -> bool:
    """Evaluate an expression up to its end or closing bracket: `AND` binds tighter than `OR`."""
    alternatives, all_of = [], True
    for token in tokens:
        if token == "OR":  # noqa: S105 - a word of SPDX
            alternatives.append(all_of)
            all_of = True
        elif token == ")":  # noqa: S105
            break
        elif token != "AND":  # noqa: S105
            all_of &= _any(tokens) if token == "(" else token.replace("+WITH+", " WITH ") in ACCEPTED  # noqa: S105
    return any([*alternatives, all_of])


def refused(distributions: Iterable[importlib.metadata.Distribution]) -> dict[str, str]:
    """Return the distributions that ORTune may not require, each with its licence."""
    found: dict[str, str] = {}
    for one in distributions:
        about = cast(Message, one.metadata)
        name = canonicalize_name(about["Name"])
        try:
            statements = stated(about)
        except UnknownLicence:
            if name not in BY_NAME:
                found[name] = "no licence stated"
            continue
        known = BY_NAME_TEXTS if name in BY_NAME else frozenset()
        if not all(accepted(statement) or statement in known for statement in statements):
            found[name] = ", ".join(statements)
    return found
