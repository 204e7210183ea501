"""Speed of precision and graph variants on this machine: `python benchmarks/variants.py [--models …]`.

Each model gets a simplified and a fused graph, FP16, INT8 dynamic and INT8 static, made as the Variants page
makes them. One comparison measures all of them against the original, on ONNX Runtime's default, batch 1. The
torchvision models have random weights, because nothing is downloaded: speed, size and memory do not depend on
them, the error of the outputs does. INT8 static is calibrated on random samples. Prints a table, and below it
the models whose ratios were measured on a busy machine. No target; exit code 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from core import wire  # noqa: E402
from core.evidence.verdict import words  # noqa: E402
from core.process.job_worker import run_job  # noqa: E402
from core.run import job_types, variants  # noqa: E402
from core.run.job import FINISHED  # noqa: E402
from core.run.scheduler import Scheduler  # noqa: E402
from core.spec import ModelRef, ProtocolSpec, TrialSpec, WorkloadSpec  # noqa: E402
from core.spec.steps import Step, chain_text  # noqa: E402
from core.store import (  # noqa: E402
    ModelRecord,
    Store,
    library,
)
from core.wire.errors import TunerError  # noqa: E402

MODELS = ("mobilenet_v3_small", "resnet18", "efficientnet_b0", "vit_b_16", "tiny_transformer")
CHAINS = (
    (Step("simplify"),),
    (Step("fuse"),),
    (Step("fp16"),),
    (Step("int8_dynamic"),),
    (Step("int8_static", {"reduce_range": True, "per_channel": True}),),
)
DIMS = {"tiny_transformer": {"sequence": 64}}
EXPORT_TIMEOUT_S = 1800.0


def model(store: Store, name: str) -> ModelRecord:
    """A sample's file, or an export with random weights."""
    sample = next((one for one in library.sample_models() if one.name == name), None)
    if sample is None:
        raise SystemExit(f"`{name}` is no sample model.")
    if sample.plan is None:
        return library.import_file(store, Path(sample.path), name=name, source="sample")
    output = store.folder / f"{name}.onnx"
    if not output.is_file():
        plan = {**sample.plan, "output": str(output), "pretrained": False}
        run_job(wire.EXPORT, plan, timeout_s=EXPORT_TIMEOUT_S)
    return library.import_file(store, output, name=name, source="export")


def make(store: Store, record: ModelRecord, dims: dict[str, int]) -> list[ModelRecord]:
    """Every variant that can be made; prints the errors of the others."""
    made = []
    for chain in CHAINS:
        try:
            result = variants.make_chain(
                store, record, chain, run=run_job, dims=dims, calibration=None
            ).result
        except TunerError as error:
            print(f"{record.name}, {chain_text(chain)}: {error.message}", file=sys.stderr, flush=True)
            continue
        if result.content_sha256 != record.content_sha256 and result not in made:
            made.append(result)
    return made


def compare(store: Store, records: Sequence[ModelRecord], dims: dict[str, int], precision: str) -> str:
    base = TrialSpec(
        model=ModelRef(path=records[0].path),
        workload=WorkloadSpec(dims=dims),
        protocol=ProtocolSpec.model_validate({"precision": precision}),
    )
    scheduler = Scheduler(store, owner="benchmarks/variants.py")
    try:
        job = scheduler.submit(job_types.comparison(variants.family_configurations(records, base)))
        while (status := scheduler.status(job)) is not None and status.state not in FINISHED:
            scheduler.join(5.0)
        if status is None or status.state != "COMPLETE":
            raise SystemExit(f"The comparison of {records[0].name} ended: {status and status.error}")
        return status.comparison
    finally:
        scheduler.close()


def rows(store: Store, comparison_id: str) -> list[dict[str, Any]]:
    """One per configuration, the original first."""
    comparison = store.comparison(comparison_id)
    assert comparison.result is not None
    against = {one["candidate"]: one for one in comparison.result["contrasts"]}
    found = []
    for one in comparison.contestants:
        trial = store.trial(one.trial)
        record, result = store.model(trial.model_sha256), trial.result
        if record is None or result is None:
            print(f"{one.label}: {trial.error and trial.error['message']}", file=sys.stderr)
            continue
        variant = variants.variant_of(record)
        found.append(
            {
                "model": comparison.model_name if variant is None else variant["root_name"],
                "variant": "original" if variant is None else chain_text(variants.steps_of(record)),
                "contrast": against.get(trial.id),
                "p50_s": result["latency"]["p50_s"],
                "size_bytes": record.info["size_bytes"],
                "peak_rss_bytes": result["peak_rss_bytes"],
                "error": (variant or {}).get("error"),
                "grade": comparison.result["grade"],
                "busy": comparison.result["busy"],
            }
        )
    return found


def show(row: dict[str, Any]) -> None:
    contrast, error = row["contrast"], row["error"]
    ratio = "1" if contrast is None else words(contrast)
    rejected = "" if contrast is None or contrast["holds"] else " (rejected by the A/A test)"
    wrong = "–" if error is None or error["max_rel"] is None else f"{error['max_rel']:.2g}"
    memory = "–" if row["peak_rss_bytes"] is None else f"{row['peak_rss_bytes'] / 2**20:.0f}"
    p50 = "–" if row["p50_s"] is None else f"{row['p50_s'] * 1e3:.3g}"
    print(
        f"| {row['model']} | {row['variant']} | {p50} | {ratio}{rejected} "
        f"| {row['size_bytes'] / 2**20:.3g} | {memory} | {wrong} | {row['grade']} |",
        flush=True,
    )


def warn(found: Sequence[dict[str, Any]]) -> None:
    """Print the models whose ratios were measured on a busy machine."""
    for name in dict.fromkeys(row["model"] for row in found if row["busy"] is not None):
        words_of = next(row["busy"]["words"] for row in found if row["model"] == name and row["busy"])
        print(f"{name}: {words_of}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="NAME")
    parser.add_argument("--effort", choices=("quick", "standard", "publish"), default="quick")
    parser.add_argument("--home", type=Path, help="keep the models there; default: a folder that is removed")
    parser.add_argument("--json", type=Path, metavar="OUT", help="keep the rows")
    given = parser.parse_args()
    lab.head(lab.this_machine())
    print("| Model | Variant | p50, ms | against the original | MiB | peak MiB | largest error | grade |")
    print("|---|---|--:|---|--:|--:|--:|---|", flush=True)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store((given.home or Path(folder)).absolute() / "ortune.db")
        for name in given.models:
            record, dims = model(store, name), DIMS.get(name, {})
            everybody = [record, *make(store, record, dims)]
            new = rows(store, compare(store, everybody, dims, given.effort))
            found += new
            for one in new:
                show(one)
            if given.json is not None:
                given.json.write_text(json.dumps(found, indent=1))
    warn(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
