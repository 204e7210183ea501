"""Rules for the values inside a spec that types and ranges cannot express. Pure; all raise `SpecError`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from core.spec.settings import is_whole_number
from core.spec.settings.provider_options import KNOWN_PROVIDERS, PROVIDER_OPTIONS, ProviderOption
from core.wire.access import library
from core.wire.errors import SpecError, nearest, range_rule

MAX_DIMENSION = 2**31 - 1
MAX_RANK = 32  # numpy's arrays end at 64 dimensions, ONNX models long before


def check_dimension(name: str, size: int) -> None:
    """Refuse an invalid size of a dimension; 0 is valid, as of an empty cache.

    Raises:
        SpecError: below 0, or more than fits into 31 bits.
    """
    if not 0 <= size <= MAX_DIMENSION:
        raise SpecError(
            f"A free dimension must lie between 0 and {MAX_DIMENSION}, but `{name}` is {size}.",
            hint=f"Give `{name}` a size in that range.",
        )


MAX_CPU = 8191  # the largest number that a Linux kernel can be built for


def cpu_list(text: str) -> list[int]:
    """Return the numbers of a Linux CPU list such as `0-3,6`, ascending and each once; empty for no text.

    Raises:
        SpecError: something else than numbers and ranges, a range that runs backwards, a number above 8191.
    """
    if not text.strip():
        return []
    found: set[int] = set()
    for part in text.split(","):
        match = _CPU_RANGE.fullmatch(part.strip())
        if match is None:
            raise SpecError(
                f"`cpus` is a list of numbers and ranges, but got `{part.strip()[:40]}` in `{text[:80]}`.",
                hint="Write logical CPUs counted from 0, for example `0-3,6`.",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise SpecError(
                f"A range of `cpus` must run upwards, but got `{first}-{last}`.",
                hint=f"Write {last}-{first}.",
            )
        if last > MAX_CPU:
            raise SpecError(
                f"`cpus` counts logical CPUs from 0 to {MAX_CPU}, but got {last}.",
                hint="Name CPUs of this machine; `ortune machine` lists them.",
            )
        found.update(range(first, last + 1))
    return sorted(found)


_CPU_RANGE = re.compile(r"([0-9]{1,6})(?:\s*-\s*([0-9]{1,6}))?")


def check_affinities(text: str, *, threads: int) -> None:
    """Refuse affinities that ONNX Runtime would throw on, or pin to another CPU than was meant.

    Raises:
        SpecError: not one entry per pool thread, or a logical CPU below 1.
    """
    if not text:
        return
    given = len(text.split(";"))
    if threads < 2 or given != threads - 1:
        raise SpecError(
            "`session.intra_op_thread_affinities` needs one entry per pool thread, which is "
            f"`intra_op_num_threads` - 1, but got {given} for {threads} threads.",
            hint="Set `intra_op_num_threads` and give one entry fewer than that.",
        )
    for part in text.replace(";", ",").replace("-", ",").split(","):
        if not is_whole_number(part.strip()) or int(part) < 1:
            raise SpecError(
                f"`session.intra_op_thread_affinities` counts logical CPUs from 1, but got `{part}`.",
                hint="Write numbers from 1, `,` or `-` between CPUs and `;` between threads.",
            )


def check_libraries(texts: Sequence[str]) -> None:
    """Refuse an invalid or repeated name of a library; whether the file exists is not checked.

    Raises:
        SpecError: an invalid or repeated name.
    """
    names = [library(text).name for text in texts]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SpecError(f"The library `{twice}` is given twice.", hint="Name each library once.")


def check_provider(provider: str, options: Mapping[str, str], *, expert: bool, plugged: bool = False) -> None:
    """Refuse a provider or an option of it that ONNX Runtime 1.31 does not know.

    Args:
        provider: its full name.
        options: by name.
        expert: unknown names are passed on.
        plugged: a library may bring a provider of any name.

    Raises:
        SpecError: unknown provider, unknown option, a value of the wrong kind or out of range, native code.
    """
    if provider not in KNOWN_PROVIDERS and not (expert or plugged):
        raise SpecError(
            f"Unknown execution provider `{provider}`.{nearest(provider, KNOWN_PROVIDERS)}",
            hint="Use one of the providers that `ortune machine` lists.",
        )
    table = PROVIDER_OPTIONS.get(provider)
    if table is None:  # a provider whose options ORTune has no list of; some of them load libraries
        if options and not expert:
            raise SpecError(
                f"ORTune does not know the options of `{provider}`, but got `{next(iter(options))}`.",
                hint="Turn on `expert` to pass them on unchecked.",
            )
        return
    known = {option.name: option for option in table}
    for name, value in options.items():
        if name not in known:
            what = f"no option `{name}`" if known else f"no options of its own, but got `{name}`"
            raise SpecError(
                f"`{provider}` has {what}.{nearest(name, known)}",
                hint="Use the session settings instead."
                if not known
                else "Correct the name; ONNX Runtime 1.31 does not accept it.",
            )
        _check_option(provider, known[name], value, expert=expert)


def _check_option(provider: str, option: ProviderOption, value: str, *, expert: bool) -> None:
    if option.native_code and not expert:
        raise SpecError(
            f"`{option.name}` of `{provider}` runs native code or takes a memory address.",
            hint="Turn on `expert` if you trust where this setting comes from.",
        )
    text = value.strip().lower()
    if option.kind == "bool" and text not in {"0", "1", "true", "false"}:
        raise SpecError(
            f"`{option.name}` of `{provider}` must be true or false, but got `{value}`.",
            hint="Write true or false.",
        )
    if option.kind == "int":
        _check_number(provider, option, value)
    if option.kind == "choice" and value not in option.choices:
        raise SpecError(
            f"`{option.name}` of `{provider}` accepts {', '.join(option.choices)}, but got `{value}`.",
            hint="Choose one of the listed values; the case matters.",
        )


def _check_number(provider: str, option: ProviderOption, value: str) -> None:
    if not is_whole_number(value):
        raise SpecError(
            f"`{option.name}` of `{provider}` must be a whole number without a unit, but got `{value}`.",
            hint="Write the number of bytes, milliseconds or items in digits.",
        )
    low, high, number = option.low, option.high, int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise SpecError(
            f"{range_rule(f'`{option.name}` of `{provider}`', low, high)}; got {number:,}.",
            hint="Choose a number in that range.",
        )


RANDOM_RANGE = "random:"
_RANGE_HINT = "Write for example `random:0..30521`; both ends are included."


def feed_range(name: str, value: object) -> tuple[float, float] | None:
    """Return the ends of `random:LOW..HIGH`; None: the value of input `name` is no range.

    Raises:
        SpecError: no two numbers, or a range that runs backwards.
    """
    if not isinstance(value, str) or not value.strip().lower().startswith("random"):
        return None
    text = value.strip().lower()
    low, _, high = text.removeprefix(RANDOM_RANGE).partition("..")
    first, last = _end(low), _end(high)
    if first is None or last is None or not text.startswith(RANDOM_RANGE):
        raise SpecError(
            f"A range of random values is `random:LOW..HIGH`, but `{name}` got `{value[:60]}`.",
            hint=_RANGE_HINT,
        )
    if first > last:
        raise SpecError(
            f"A range of random values must run upwards, but `{name}` got `{value[:60]}`.",
            hint=f"Write `random:{high.strip()}..{low.strip()}`.",
        )
    return first, last


def _end(text: str) -> float | None:
    """A whole number as it is, because a float holds 53 bits of it only; None: no finite number."""
    plain = text.strip()
    if len(plain) > 40:
        return None
    try:
        number = int(plain) if is_whole_number(plain) else float(plain)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def check_feed_value(name: str, value: object, depth: int = 0) -> None:
    """Refuse a fixed value that is no number, boolean or text, or no nested lists of them.

    Raises:
        SpecError: null, a date, a mapping, NaN or infinity, lists deeper than any tensor, no range of numbers
            after `random:`.
    """
    if depth == 0:
        feed_range(name, value)
    if isinstance(value, list | tuple):
        if depth >= MAX_RANK:
            raise SpecError(
                f"The fixed value of `{name}` has more than {MAX_RANK} levels of lists.",
                hint="Give as many levels as the input has dimensions.",
            )
        for one in value:
            check_feed_value(name, one, depth + 1)
    elif not isinstance(value, bool | int | float | str) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise SpecError(
            f"The fixed value of `{name}` must be finite numbers, booleans or text, but got {value!r:.80}.",
            hint="Give one value, or lists of values nested like the input's shape.",
        )


def check_image_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    """Refuse statistics that cannot normalise an image.

    Raises:
        SpecError: not finite, a deviation of 0 or less, different numbers of channels.
    """
    if not all(math.isfinite(value) for value in mean):
        raise SpecError(
            f"`image_mean` must be finite in every channel, but got {list(mean)}.",
            hint="Give one number per channel.",
        )
    if not all(math.isfinite(value) and value > 0 for value in std):
        raise SpecError(
            f"`image_std` must be above 0 in every channel, but got {list(std)}.",
            hint="Give one positive number per channel.",
        )
    if mean and std and len(mean) != len(std):
        raise SpecError(
            f"`image_mean` has {len(mean)} channels, but `image_std` has {len(std)}.",
            hint="Give both one number per channel.",
        )
