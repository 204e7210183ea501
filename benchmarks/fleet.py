"""Cost of a fleet: `python benchmarks/fleet.py [--only KIND …] [--json FILE]`.

What: five questions about a fleet whose scheduler, hosts and client are processes of this machine, connected
with certificates.

extra  The same comparison, as a command without a fleet, as a command for a running scheduler with one host,
       and as a command with an embedded cluster, in a rotating order: the seconds that the fleet adds. The
       start of the embedded cluster is also timed alone. Target: a running fleet adds at most 1 s.
idle   CPU time of the scheduler, the host, the process of a question and the client as a share of a core,
       while nothing is asked and while a question measures. Target: each host uses at most 1 %.
aa     Comparisons of digits_cnn with itself, beside an idle scheduler and host and without them, alternating:
       how many are called FASTER or SLOWER, and the ratio of the half-widths. Each measures for its whole
       time budget, unless the goal of effort publish is reached. Target: at most 5 % are called, and the
       intervals are at most 10 % wider.
hosts  One question to 200 simulated hosts (real Dask workers, made-up answers, `benchmarks/fleet_hosts.py`):
       seconds until the client has all answers, CPU time of the scheduler and the client, peak memory. A
       made-up answer has the document of a real comparison and no rows of a store. How long the page takes to
       redraw such a run is measured by `benchmarks/fleet_redraw.py`.
model  A model with 2 GB of random weights to five hosts, which do not use the client's files: seconds, MB/s
       and peak memory; asked again, the hosts receive nothing. Target: less than 1 % of the model is written
       the second time. It needs six times the size of the model in the temporary folder (`TMPDIR`).

Every row has the steal and the load of other programs. Everything runs on one machine, so the processes share
its CPUs and its disk: separate machines are faster. Exit code 1: a target is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import fleet_figures, fleet_kinds  # noqa: E402
from benchmarks.fleet_client import Client, one_host  # noqa: E402
from benchmarks.fleet_figures import KINDS  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from benchmarks.tables import long_form  # noqa: E402


def measure(journal: Journal, given: argparse.Namespace, folder: Path) -> None:
    """Fill the journal with every chosen kind."""
    if "extra" in given.only or "idle" in given.only:
        with one_host(folder / "one") as fleet:
            client = Client(fleet)
            if "extra" in given.only and len(journal.of("extra")) < given.extra:
                until(journal, "extra", given.extra, fleet_kinds.Extra(client, given.runs).once)
            if "idle" in given.only:
                until(journal, "idle", given.idle, lambda i: fleet_kinds.idle(client, given.idle_s, i))
    others: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
        "aa": (given.aa, lambda i: fleet_kinds.aa(folder, given.aa_s, i, journal.of("aa"))),
        "hosts": (
            given.times,
            lambda i: fleet_kinds.many_hosts(folder / f"hosts-{i}", given.hosts, given.hosts_s),
        ),
        "model": (given.times, lambda i: transferred(folder, given.model_mb)),
    }
    for kind, (count, make) in others.items():
        if kind in given.only:
            until(journal, kind, count, make)


def transferred(folder: Path, megabytes: int) -> dict[str, Any]:
    """Send a model, and delete it and its copies."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        return fleet_kinds.transfer(Path(own), megabytes)


def options() -> argparse.ArgumentParser:
    """Return the options of this script."""
    parser = lab.options(__doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--extra", type=int, default=5, help="times that each way is asked")
    parser.add_argument("--runs", type=int, default=2000, help="of each comparison of `extra`")
    parser.add_argument("--idle", type=int, default=2, help="intervals; every other one during a question")
    parser.add_argument("--idle-s", type=float, default=20.0, help="seconds of each interval")
    parser.add_argument("--aa", type=int, default=8, help="comparisons; every other one beside an idle host")
    parser.add_argument("--aa-s", type=float, default=10.0, help="time budget of each comparison")
    parser.add_argument("--hosts", type=int, default=200, help="simulated hosts")
    parser.add_argument("--hosts-s", type=float, default=5.0, help="seconds of a made-up answer")
    parser.add_argument("--model-mb", type=int, default=2000, help="megabytes of weights")
    parser.add_argument("--times", type=int, default=1, help="measurements of `hosts` and of `model`")
    return parser


def main() -> int:
    """Run the experiment."""
    given = options().parse_args()
    machine = lab.this_machine()
    names = ("runs", "idle_s", "aa_s", "hosts", "hosts_s", "model_mb")
    chosen = {name: getattr(given, name) for name in names}
    journal = Journal(given.json, script="fleet", options=chosen, machine=machine)
    with tempfile.TemporaryDirectory(prefix="ortune-fleet-") as folder, lab.turn("benchmarks/fleet.py"):
        measure(journal, given, Path(folder))
    lab.head(machine)
    missed = False
    for kind in given.only:
        rows = list(fleet_figures.rows_of_kind(journal.head, kind, journal.of(kind)))
        print(long_form(rows), end="\n\n", flush=True)
        missed |= any(one.met == "no" for one in rows)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
