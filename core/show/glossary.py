"""The words of this field and of this product, one sentence or two each. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.wire.errors import SpecError, nearest

TERMS: Mapping[str, str] = {
    "run": "One call of the model, from inputs to outputs. Latency is the time of one run.",
    "block": "Runs of one configuration in a row, some tens of milliseconds. Its median counts.",
    "round": "One block of everybody who races, in random order. A ratio is taken within a "
    "round, so that what slows the machine slows all of them.",
    "generation": "A set of fresh processes, one of each configuration, that races for some rounds "
    "and ends. Two processes of the same configuration differ by a few percent; an "
    "interval over generations holds for new ones.",
    "race": "Rounds and generations until the answer is known or the budget is spent.",
    "baseline": "What a configuration is put against: ONNX Runtime's default, or a result that was pinned.",
    "A/A test": "ONNX Runtime's default against a twin of itself in the same rounds. They are "
    "equal, so what differs is noise; where it says otherwise, the race is rejected.",
    "95 % interval": "Of a hundred such intervals about 95 hold the true value. The 5 % are split over the "
    "interim analyses of a comparison and over its configurations, so that all its intervals hold together; "
    "one part is kept for going on with it.",
    "ratio": "Speed against the baseline: its median latency in a block, divided by the candidate's in the "
    "same round; then the middle over rounds and generations. Mean latency and throughput of one "
    "configuration are of a usual launch, percentiles of all runs: their quotients may differ from it.",
    "margin": "A difference that counts as none, 2 % unless it is set. Within it two are equivalent, though "
    "one may be measurably faster.",
    "verdict": "It follows from the interval. Equivalent: the interval lies within the margin, even where it "
    "excludes 1×. Faster or slower: it lies beyond 1×. Undecided: neither, measuring longer may tell.",
    "rank": "The places that the intervals leave open, such as 2–3: ahead is whose interval lies "
    "wholly above another's.",
    "undisturbed rounds": "Rounds whose counters show no disturbance. Counters decide no verdict; but where "
    "these rounds alone say otherwise than all, the interval spans both answers.",
    "grade": "How good an answer is: its interval is within ±1 % (A), ±3 % (B), ±10 % (C) or wider (D). "
    "F: the A/A control failed, so that it must not be believed. A busy machine or an open answer is named.",
    "busy machine": "Other programs used the CPUs meanwhile. Ratios stay those of the same rounds; "
    "times are not the configuration's alone.",
    "glimpse": "An estimate from a few launches of fresh processes. No verdict: outputs are not compared.",
    "p50, p95, p99": "Half, 95 % or 99 % of the runs took no longer. A high percentile needs many runs. "
    "Its interval holds for launches like those that ran: a kind of launch that did not occur is not in it.",
    "per row": "Divided by the batch size: what one input of a batch costs.",
    "throughput": "Rows per second of one session whose runs follow one another, in a usual launch: launches "
    "that were much slower or faster than the others for life hardly count.",
    "cold start": "What the first answer costs: creating the session, the first run, the first run of "
    "a new shape.",
    "provider": "The part of ONNX Runtime that computes a node: CPU, CUDA, TensorRT, OpenVINO.",
    "fallback": "A provider that was asked for did not load, or did not take a node, and another "
    "one computed it.",
    "fingerprint": "What of a machine decides about speed: CPU, usable threads, kernel, versions. "
    "Results of different fingerprints are not compared as equals.",
    "steal": "CPU time that a virtual machine wanted and its host gave to others.",
    "variant": "The same model after steps such as fusing, FP16 or INT8; its outputs are held "
    "against the original's.",
    "calibration": "Rows that show the ranges of values, from which static quantization takes its scales.",
    "tolerance": "How far outputs may be from the original's before their numbers are marked.",
}


def meaning(word: str) -> str:
    """Return what `word` means; capitals do not matter, and one word of a term is enough.

    Raises:
        SpecError: it is not in the glossary, with the nearest that are.
    """
    asked = word.lower()
    found = next((text for term, text in TERMS.items() if asked in term.lower().split(", ")), None)
    if found is None:  # a part of one: A/A, interval
        found = next((text for term, text in TERMS.items() if asked in term.lower().split()), None)
    if found is None:
        raise SpecError(
            f"`{word[:40]}` is not in the glossary.{nearest(word, list(TERMS))}",
            hint="Run `glossary` without a word: it lists all of them.",
        )
    return found
