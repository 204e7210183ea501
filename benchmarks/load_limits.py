"""The search for the highest rate within a limit, on simulated queues whose limiting rate is known.

Every search chooses its probes and confirmations as a real one does; a simulated queue serves them. A
confirmed rate above the true one is a false claim: goal at most 7 % of the searches. Prints its share with
the 95 % interval, the median of the confirmed rate over the true one, and how many searches confirm none.
Exit code 1: a share of false claims is significantly above the goal.

    python benchmarks/load_limits.py [--searches 300] [--budget 120] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.intervals import share_interval, share_text  # noqa: E402
from benchmarks.load_bounds import GOAL, LIMIT_SHARE, Queue, service_times, true_percentile  # noqa: E402
from core.evidence.load.bounds import Clusters, Counted, judge  # noqa: E402
from core.evidence.load.limit_search import LimitSearch, Step, Tried  # noqa: E402
from core.spec.load import LoadLimit  # noqa: E402

SERVICE_S = 0.002  # mean
SATURATED_LIMITS, SATURATED_S = 4.0, 1.0  # as the driver of real runs
QUEUES = (
    *(Queue("exponential", rho) for rho in (0.3, 0.5, 0.7, 0.85)),
    Queue("lognormal", 0.7),
    Queue("deterministic", 0.8),
    Queue("bimodal", 0.5),
)


def searched(queue: Queue, limit: LoadLimit, seed: int, budget_s: float) -> tuple[float | None, int]:
    """Search once; return the confirmed rate over the true one (None: none), and the number of runs."""
    rng = np.random.default_rng(seed)
    capacity = float(rng.normal(1.0, 0.01)) / SERVICE_S
    warmup_s = max(2.0, 5.0 * (limit.at_most_s or 0.0))
    search = LimitSearch(capacity=capacity, warmup_s=warmup_s, budget_s=budget_s)
    while (step := search.next_step()) is not None:
        search.add(_run(queue, limit, step, warmup_s, rng))
    confirmed = search.answer(0, [limit])["confirmed_per_s"]
    return None if confirmed is None else confirmed * SERVICE_S / queue.utilisation, len(search.tried)


def _run(queue: Queue, limit: LoadLimit, step: Step, warmup_s: float, rng: np.random.Generator) -> Tried:
    assert limit.at_most_s is not None
    until_s = warmup_s + step.seconds
    count = int(step.rate * until_s * 1.2) + 100
    gaps = rng.exponential(1 / step.rate, count)
    at = np.cumsum(gaps)
    service = SERVICE_S * service_times(queue.service, rng, (1, count))[0]
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    waiting = walk - np.minimum.accumulate(walk)
    late = np.flatnonzero((waiting > max(SATURATED_LIMITS * limit.at_most_s, SATURATED_S)) & (at < until_s))
    end_s = float(at[late[0]]) if len(late) else until_s
    kept = (at >= min(warmup_s, end_s / 2)) & (at < end_s)
    counted = Counted(
        at_s=at[kept].tolist(),
        value_s=(waiting + service)[kept].tolist(),
        from_s=min(warmup_s, end_s / 2),
        until_s=end_s,
    )
    found = judge(limit, Clusters([counted]))
    return Tried(
        step=step,
        verdict="FAIL" if len(late) else found["verdict"],
        outcome="saturated" if len(late) else "complete",
        over=found["share"] / found["allowed"],
    )


def searches(queue: Queue, count: int, budget_s: float) -> dict[str, Any]:
    """Search `count` times on one queue."""
    limit = LoadLimit(share=LIMIT_SHARE, at_most_s=true_percentile(queue) * SERVICE_S)
    found = [searched(queue, limit, seed, budget_s) for seed in range(count)]
    ratios = [ratio for ratio, _ in found if ratio is not None]
    return {
        "queue": queue.name,
        "searches": count,
        "false": sum(ratio > 1 for ratio in ratios),
        "none": count - len(ratios),
        "ratio": statistics.median(ratios) if ratios else None,
        "runs": statistics.fmean(runs for _, runs in found),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--searches", type=int, default=300)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for queue in QUEUES:
        row = searches(queue, given.searches, given.budget)
        rows.append(row)
        print(
            f"{row['queue']}: confirmed above the true rate {share_text(row['false'], row['searches'])}; "
            f"median confirmed/true {row['ratio'] or 0.0:.2f}; none confirmed {row['none']}; "
            f"{row['runs']:.1f} runs",
            flush=True,
        )
    if given.json is not None:
        document = {"script": "load_limits", "at": round(time.time()), "rows": rows}
        given.json.write_text(json.dumps(document), encoding="utf-8")
    return int(any(share_interval(row["false"], row["searches"])[0] > GOAL for row in rows))


if __name__ == "__main__":
    sys.exit(main())
