"""The glossary: terms of the field and of ORTune, each in one or two sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.wire.errors import SpecError, nearest

TERMS: Mapping[str, str] = {
    "run": "One inference: one call of the model, from inputs to outputs. Latency is the time of one run; "
    "per run means per inference.",
    "block": "Consecutive runs of one process, 20 to 100 ms long, or one run if that takes longer. "
    "The median latency of the block is used.",
    "round": "One block of every process, in random order: one process per configuration, two for the ORT "
    "default. Ratios are taken within a round, so background load usually affects all alike.",
    "launch": "One fresh process of every configuration, two of the default, measured for some rounds. Two "
    "processes of one configuration differ by 0.8 % (median, idle machine) and by more beside load, so an "
    "interval needs several launches.",
    "comparison": "Rounds and launches of two to eight configurations, until the result is decided or "
    "the time budget is spent. One configuration is the baseline.",
    "trial": "One configuration of one model with its measured result. It has an ID and is listed in "
    "the history.",
    "baseline": "The configuration that the others are compared with: ONNX Runtime's default, or a "
    "pinned result.",
    "effort": "How narrow the 95 % interval has to be before a comparison stops: ±3 % (quick), ±1.5 % "
    "(standard) or ±0.7 % (publish). Each effort has a default time budget.",
    "budget": "The most time that a measurement or a search may take. It ends earlier once the result "
    "is decided.",
    "A/A control": "Two copies of one configuration, usually ONNX Runtime's default, measured in the same "
    "rounds (an A/A test): any difference is noise. If they differ by more than 1 % with p < 0.01, only "
    "effects at least three times that size are reported.",
    "A/A pair": "Two processes of one configuration in the same rounds of a search. A pair that differs "
    "rejects nothing: the search warns, and the interval of its confirmation includes the spread.",
    "ORT default": "ONNX Runtime without any setting, on the same inputs. Every comparison measures it.",
    "95 % interval": "Of a hundred such intervals about 95 contain the true value. The 5 % are divided over "
    "the interim analyses of a comparison and over its configurations, and a part is reserved for "
    "measuring longer.",
    "half-width": "Half the width of a 95 % interval, as a share of the value: ±1.6 %. It is the "
    "precision of a result and decides the grade.",
    "ratio": "The median latency of the baseline divided by the candidate's in the same round, averaged "
    "robustly over rounds and launches. Mean latency, percentiles and throughput are not paired, so "
    "their quotients may differ from it.",
    "speed-up": "The ratio of two configurations where the candidate is faster: 1.42× means 1.42 times "
    "as fast. A search reports the speed-up of its confirmation alone.",
    "equivalence "
    "margin": "The largest difference that counts as none, 2 % by default. Two configurations within it "
    "are equivalent, even if one is measurably faster.",
    "verdict": "Equivalent if the 95 % interval lies within the equivalence margin, faster or slower if "
    "it excludes 1×, otherwise undecided. Measuring longer may decide it.",
    "rank": "The possible places of a configuration by the 95 % intervals, such as 2–3. Intervals that "
    "overlap leave several places open.",
    "undisturbed "
    "rounds": "Rounds without a disturbance in the system counters. If they alone give another verdict "
    "than all rounds, the reported interval covers both.",
    "grade": "Precision of a result, by the half-width of its 95 % interval: A ≤ 1 %, B ≤ 3 %, C ≤ 10 "
    "%, D wider. F: rejected, because the A/A control failed and no effect is large enough beside it.",
    "background "
    "load": "Other processes or virtual machines that used the CPUs or the GPU during a measurement. "
    "Ratios are taken within rounds and stay comparable; absolute times may be too high.",
    "estimate": "A rough ratio from a few launches of fresh processes, as of the live preview. It is no "
    "verdict: outputs are not compared.",
    "p50, p95, "
    "p99": "The latency that 50 %, 95 % or 99 % of the runs did not exceed. A high percentile needs "
    "many runs.",
    "per "
    "sample": "Divided by the batch size: the cost of one item of the batch. Used where batch sizes differ.",
    "throughput": "Samples per second of one session that executes one run after another: the batch "
    "size divided by the mean latency. With several streams: the samples of all callers while every one of "
    "them is busy. Unusually slow or fast launches have little weight.",
    "stream": "A caller that passes the next batch as soon as its result is there. Several streams are "
    "threads that call one session, or processes with a session and CPUs of their own.",
    "service latency": "The time of a run beside other callers in a closed loop. It is no user latency, "
    "because no request waits for its turn.",
    "latency limit": "The latency that a point of a sweep may not exceed. The best point is the one with the "
    "highest throughput at or under it.",
    "constraint": "A bound that the result of a search has to keep, such as p99 ≤ 3 ms. It limits the "
    "choice, while the objective ranks what is left.",
    "target": "A metric with a limit that a scorecard tests. It is met or missed if the whole 95 % "
    "interval is on one side of the limit, otherwise unknown.",
    "screening": "The first stage of a search: short measurements of many configurations, a few rounds "
    "each. It selects candidates and is never reported as a result.",
    "elimination "
    "round": "The second stage of a search: the best candidates run in fresh processes, and any that is "
    "significantly slower than the leader is dropped.",
    "confirmation": "The last stage of a search: the best configuration and ONNX Runtime's default are "
    "measured again in fresh processes. The reported result comes from it alone, so selection bias "
    "does not inflate it.",
    "Pareto "
    "front": "The points that no other point beats in both quantities, such as latency and throughput. "
    "In a search, beating means significantly better in one and not worse by more than the equivalence "
    "margin or the noise in the others.",
    "load test": "Requests sent to a configuration at scheduled times, to see at which rate it keeps a "
    "latency limit. Its latencies include waiting.",
    "open loop": "Requests arrive at scheduled times, whether or not earlier ones are answered, as those of "
    "independent users do. Load tests use it.",
    "closed loop": "Each caller sends its next request when its last one is answered, so a slow server slows "
    "its callers, too. It measures capacity; its percentiles are service latency under N callers.",
    "scheduled arrival": "The time at which a request of a load test should start. Latency counts from it, "
    "even if the request had to wait.",
    "service "
    "time": "The time of the call that answers a request. Latency under load is waiting plus service time.",
    "saturated": "Requests arrive faster than they are served, so the queue grows without end. Percentiles "
    "then depend on how long the run lasts; ORTune ends it early.",
    "coordinated "
    "omission": "The error of timing a request from when it was sent: a stalled server delays the sending, "
    "so the waiting is not measured. ORTune counts from the scheduled arrival.",
    "harness": "The part of ORTune that starts requests at their times and records them. A load test says "
    "what it added to the latency; above 10 % of p50 the run is not a measurement.",
    "capacity": "Requests per second that a configuration completes when every stream starts the next one at "
    "once. With arrivals at random times a latency limit allows less.",
    "dynamic "
    "batching": "Joining waiting requests into one run, up to a maximum batch, or until the first has waited "
    "for a maximum delay. It helps only if samples per second grow with the batch.",
    "cold start": "The cost of the first answer: session creation, the first run, and the first run of a new "
    "input shape.",
    "provider": "The execution provider of ONNX Runtime that computes a node: CPU, CUDA, TensorRT, OpenVINO.",
    "runtime": "A Python environment with its own ONNX Runtime, or with OpenVINO, in which a configuration "
    "runs. `own` is the environment of ORTune.",
    "fallback": "A requested execution provider did not load or did not take a node, so another one "
    "computed it.",
    "fingerprint": "The properties of a machine that decide its speed: CPU, usable threads, kernel, "
    "library versions. Results with different fingerprints are not treated as comparable.",
    "steal": "CPU time that a virtual machine requested and its host gave to other guests.",
    "variant": "The same model after steps such as graph optimization, FP16 or INT8. ORTune checks its "
    "outputs against those of the original.",
    "calibration": "Finding the value ranges for static quantization by running sample data through the "
    "model. The scales follow from these ranges.",
    "output check": "Compares the outputs of a configuration with those of the original model, run without "
    "optimizations on the CPU. Results beyond the tolerance are marked *outputs differ*.",
    "tolerance": "The largest allowed difference from the original's outputs. Beyond it the result is "
    "marked.",
    "bundle": "A zip with model, configuration, script, requirements and recorded inputs and outputs. "
    "`ortune verify` tests it on another machine.",
}


def meaning(word: str) -> str:
    """Return the meaning of `word`, in any case; one word of a term is enough.

    Raises:
        SpecError: it is not in the glossary; the message names similar terms.
    """
    asked = word.lower()
    found = next((text for term, text in TERMS.items() if asked in term.lower().split(", ")), None)
    if found is None:  # part of a term: A/A, interval
        found = next((text for term, text in TERMS.items() if asked in term.lower().split()), None)
    if found is None:
        raise SpecError(
            f"`{word[:40]}` is not in the glossary.{nearest(word, list(TERMS))}",
            hint="Run `glossary` without a word: it lists all of them.",
        )
    return found
