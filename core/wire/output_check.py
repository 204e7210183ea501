"""Output check: error against the reference, and its tolerance.

The reference is the model at the root of a variant's chain, or the unchanged model itself: optimizations off,
on the CPU, with the same inputs. Pure: the functions judge errors that a comparison has measured.

Reasons for the tolerances (`TOLERANCES`). The largest error is a share of the largest magnitude that either
side computed in an output.

- fp32: the same sums in another order differ by 1e-6, fusions that approximate a function by up to 1e-4.
  1e-3 is above both. Every sample must keep its class, unless the error is so small that classes were tied.
- tf32 and fp16 round to 11 bits, 5e-4 each time, and some tens of roundings accumulate: 2e-2. Mixed precision
  is partly fp16. bf16 rounds to 8 bits, 4e-3 each time: 5e-2.
- int8: a scale of 256 steps and accumulated errors cost a sound model 0.5 to 5 %; the saturating instructions
  of CPUs without VNNI cost 20 % and more. 1e-1 lies between.
- int4: 16 levels for a block of weights cost some percent in each layer: 2e-1.

Below FP32 the class may change in some samples, because random inputs put classes close to each other: in a
tenth of them, with INT8 and INT4 in half. A share of fewer samples than `LEAST_ROWS` is not judged. Accuracy
on real data needs a labelled dataset.

Some outputs cannot be judged: no value of one is finite on either side, all are empty, or the model draws
random numbers, so that two runs of the same session differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, cast

from core import wire

OUTPUTS_DIFFER = "outputs differ"  # shown with every number of a result beyond its tolerance
WARNING = "⚠"  # precedes `OUTPUTS_DIFFER` in tables and charts, which have no icons
DIFFERENT_OUTPUTS = "computes something else"  # shown with a verdict between models whose outputs differ
ADVICE = (
    "Calibrate on data like the model's own, create the variant again with other options, or "
    "set the tolerance that your use allows."
)
TIE_MAX_REL = 1e-5  # largest error below which a changed class was a tie
LEAST_ROWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The largest output error that is accepted."""

    max_rel: float  # the largest error, as a share of the largest magnitude
    top1_agreement: float | None  # share of samples that must keep their class; None: not judged


TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(max_rel=1e-3, top1_agreement=1.0),
    "tf32": Tolerance(max_rel=2e-2, top1_agreement=0.9),
    "fp16": Tolerance(max_rel=2e-2, top1_agreement=0.9),
    "bf16": Tolerance(max_rel=5e-2, top1_agreement=0.9),
    "mixed": Tolerance(max_rel=2e-2, top1_agreement=0.9),
    "int8": Tolerance(max_rel=1e-1, top1_agreement=0.5),
    "int4": Tolerance(max_rel=2e-1, top1_agreement=0.5),
}


class Judged(TypedDict):
    """An `OutputCheck` as it is stored."""

    breach: bool | None  # tolerance exceeded; null: not compared, or cannot be judged
    why: str
    precision: str
    tolerance: Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """The result of the output check; `why` explains it in words in either case."""

    breach: bool | None  # tolerance exceeded; None: not compared, or cannot be judged
    why: str
    precision: str
    tolerance: Tolerance

    def to_dict(self) -> Judged:
        """Plain JSON data: the part of a result's `guard` that is judged."""
        return cast(Judged, asdict(self))


Pairs = Mapping[tuple[str, str], OutputCheck]  # content hashes of two models -> whether they compute the same


def not_compared_words(reason: object) -> str:
    """Return the sentence for outputs without a check."""
    return f"The outputs were not compared: {reason}"


def tolerance_of(precision: str, max_rel: float | None = None) -> Tolerance:
    """Return the tolerance of `precision`; an unknown precision has that of FP32.

    Args:
        precision: a key of `TOLERANCES`.
        max_rel: the user's own limit instead; classes are not judged then.
    """
    if max_rel is not None:
        return Tolerance(max_rel=max_rel, top1_agreement=None)
    return TOLERANCES.get(precision, TOLERANCES["fp32"])


def loosest_precision(*precisions: str) -> str:
    """Return the one of `precisions` that allows the largest error."""
    return max(precisions, key=lambda one: tolerance_of(one).max_rel)


def check_outputs(
    error: wire.OutputError | None,
    precision: str,
    max_rel: float | None = None,
    *,
    unknown: str = "",
    random: Sequence[str] = (),
) -> OutputCheck:
    """Judge the outputs of one configuration.

    Args:
        error: of its outputs against the reference's; None: they were not compared.
        precision: that it computes in.
        max_rel: the user's own tolerance; None: that of the precision.
        unknown: why there is no `error`, in a sentence.
        random: operators of the model that draw random numbers, see `random_operators`.
    """
    allowed = tolerance_of(precision, max_rel)
    breach: bool | None = None
    if error is None:
        why = unknown or "The outputs were not compared."
    else:
        breach, why = _within_tolerance(error, allowed, "as you set it" if max_rel is not None else precision)
        if void := not breach and _not_judgeable(error):
            breach, why = None, void
        elif breach and random:
            breach, why = None, _RANDOM.format(names=", ".join(random), why=why)
    return OutputCheck(breach=breach, why=why, precision=precision, tolerance=allowed)


def _within_tolerance(error: wire.OutputError, allowed: Tolerance, whose: str) -> tuple[bool, str]:
    most = error["max_rel"]
    if most is None:
        return True, error["difference"]
    far, moved = not most <= allowed.max_rel, _classes_changed(error, most, allowed)  # NaN is far
    parts = [
        f"largest error {most:.2g} of the largest magnitude, where {allowed.max_rel:g} is allowed ({whose})"
    ]
    if moved:
        parts.append(
            f"the highest class agrees in {error['top1_agreement']:.1%} of {rows_of(error)}, where "
            f"{allowed.top1_agreement:.0%} is required"
        )
    if odd := error.get("not_finite"):
        parts.append(f"{odd:,} values are infinite or not a number on both sides")
    return far or moved, "; ".join(parts)


def _not_judgeable(error: wire.OutputError) -> str:
    """Why equal outputs prove nothing; empty: they can be judged."""
    names = error.get("void")
    if not names:
        return ""
    listed = ", ".join(f"`{name}`" for name in names[:5])
    if not error.get("not_finite"):
        return f"nothing could be compared of {listed}: no output holds a value; use sizes above 0"
    return (
        f"nothing could be compared of {listed}: every value is infinite or not a number, in the reference "
        f"too ({error.get('not_finite', 0):,} values); use inputs that suit the model"
    )


def _classes_changed(error: wire.OutputError, most: float, allowed: Tolerance) -> bool:
    """Whether too many samples have another class than in the reference."""
    agreement, least = error["top1_agreement"], allowed.top1_agreement
    if agreement is None or least is None or most <= TIE_MAX_REL:
        return False
    enough = least == 1.0 or error.get("rows", LEAST_ROWS) >= LEAST_ROWS
    return enough and agreement < least


def rows_of(error: wire.OutputError) -> str:
    """Return the number of samples behind the share of equal classes; earlier versions did not store it."""
    rows = error.get("rows")
    return "an unknown number of samples" if rows is None else f"{rows:,} sample{'s' * (rows != 1)}"


def output_difference_words(name: str, against: str, verdict: OutputCheck) -> str:
    """Return a sentence, without its full stop, that compares one model's outputs with another's."""
    why = verdict.why.rstrip(".")
    if verdict.breach:
        return f"`{name}` {DIFFERENT_OUTPUTS} than `{against}`: {why}"
    if verdict.breach is None:
        return f"It is unknown whether `{name}` computes the same as `{against}`: {why}"
    return f"`{name}` and `{against}` are different models whose outputs agree: {why}"


# --- random operators, and the precision of a configuration -------------------------------------------------


RANDOM_OPERATORS = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
_RANDOM = (
    "the model draws random numbers ({names}), so two runs of it differ and its outputs "
    "cannot be judged; here {why}"
)


def random_operators(info: wire.ModelInfo) -> list[str]:
    """Return the operators of a model that draw random numbers in each run."""
    return [name for name in RANDOM_OPERATORS if name in info["op_counts"]]


def effective_precision(precision: str, session: wire.SessionPlan, ran: Collection[str] | None = None) -> str:
    """Return the precision that `session` computes a model of `precision` in, a key of `TOLERANCES`.

    A CUDA provider multiplies FP32 matrices in TF32 unless an option forbids it, and TensorRT in the types
    that its options allow; the reference does neither.

    Args:
        precision: of the model.
        session: as requested.
        ran: providers that ran nodes; one that fell back widens no tolerance. None: all requested ones.
    """
    found = [precision]
    for provider in session["providers"]:
        if ran is not None and provider["name"] not in ran:
            continue
        options = provider["options"]
        if provider["name"] in wire.CUDA_PROVIDERS and options.get("use_tf32", "1") == "1":
            found.append("tf32")
        found += [kind for name, kind in _TENSORRT_KINDS if options.get(name, "").lower() in ("1", "true")]
    return loosest_precision(*found)


_TENSORRT_KINDS = (("trt_fp16_enable", "fp16"), ("trt_bf16_enable", "bf16"), ("trt_int8_enable", "int8"))


# --- reading stored results ---------------------------------------------------------------------------------

_EARLIER_VERSION = (
    "they differed from those of the configuration that it was compared with; the error "
    "against the reference was not measured"
)


def breach(result: Mapping[str, Any] | None) -> str:
    """Return why the outputs of a trial's result exceed their tolerance; "" where they do not.

    Also "" where that is unknown. An earlier version compared only the two configurations with each other.
    """
    facts = result or {}
    judged = facts.get("guard")
    if judged is not None:
        return str(judged["why"]) if judged["breach"] else ""
    return _EARLIER_VERSION if any(one.get("outputs_differ") for one in facts.get("contrasts") or ()) else ""


def not_judged_reason(result: Mapping[str, Any] | None) -> str:
    """Return why outputs that were compared cannot be judged; "" where they were judged."""
    facts = result or {}
    judged = facts.get("guard")
    return str(judged["why"]) if judged and judged["breach"] is None and facts.get("output_error") else ""


def different_outputs_words(contrast: Mapping[str, Any] | None) -> str:
    """Return the addition to a verdict between models that do not compute the same.

    "; computes something else"; "" where both sides have one original, or originals whose outputs agree.
    """
    return f"; {DIFFERENT_OUTPUTS}" if (contrast or {}).get("something_else") else ""


def error_in_words(result: Mapping[str, Any]) -> str:
    """Return the output error of a trial's result against the reference, and its tolerance, in words.

    Or why outputs could not be compared or judged; "" for a result of an earlier version.
    """
    judged, error = result.get("guard"), cast(Any, result.get("output_error") or {})
    if judged is None:
        return ""
    if error.get("max_rel") is None or judged["breach"] is None:
        return str(judged["why"])
    parts = [
        f"largest error {error['max_abs']:.2g} ({error['max_rel']:.2g} relative)",
        f"mean {error['mean_abs']:.2g} ({error['mean_rel']:.2g} relative)",
    ]
    if error["cosine"] is not None:
        parts.append(f"cosine {error['cosine']:.6f}")
    if error["top1_agreement"] is not None:
        parts.append(f"highest class agrees in {error['top1_agreement']:.1%} of {rows_of(error)}")
    if error.get("not_finite"):
        parts.append(f"{error['not_finite']:,} values infinite or not a number on both sides")
    of, allowed = (judged["reference"] or {}).get("model", "the reference"), judged["tolerance"]
    whose = judged["precision"] if allowed["top1_agreement"] is not None else "as you set it"
    return f"{', '.join(parts)}; against {of}, where {allowed['max_rel']:g} relative is allowed ({whose})"
