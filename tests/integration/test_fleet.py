"""A fleet with the real Dask: embedded, and with a scheduler and hosts in processes behind certificates."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from core import wire
from core.api import fleet
from core.api.session import Session
from core.evidence.fleet.fleet_types import Answer, FleetRun
from core.evidence.fleet.matrix import Configuration
from core.evidence.fleet.portability import Candidates
from core.process.job_worker import run_job
from core.process.machine_queue import MachineQueue
from core.run.fleet import folders, on_host
from core.run.fleet.asking import Control
from core.run.fleet.requests import PreparedQuestion
from core.run.fleet.runs import RunFolder
from core.store import Store
from core.wire.errors import SpecError, StoreError
from tests import fleets, tiny_models
from tests.command_line import CommandLine
from tests.documents import errors_of
from tests.fleets import FleetProcesses
from tests.made_up_question import END, NOTES
from tests.waiting import WAIT_S, wait_until

pytest.importorskip("distributed")
pytest.importorskip("cryptography")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acquainted: Path) -> Iterator[Session]:
    """A session with an ORTune folder of its own, where `acquainted` has inspected the models."""
    line = CommandLine(tmp_path / "client", acquainted)
    monkeypatch.setenv("ORTUNE_HOME", str(line.home))
    monkeypatch.setenv("ORTUNE_QUEUE", str(line.queue))
    with Session() as session:
        yield session


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, described: list[wire.Environment]) -> None:
    """Hosts in this process answer with made-up questions; the facts of the machine are read once."""
    described[:] = described or [run_job(wire.ENVIRONMENT, {})]
    monkeypatch.setattr(on_host, "PROGRAM", (sys.executable, str(fleets.MADE_UP)))
    monkeypatch.setattr(on_host, "_environment", lambda: described[0])


def asked(model: Path, seconds: float = 0.2, *more: str) -> fleet.Asked:
    return fleet.Asked(command="compare", model=str(model), arguments=["--budget", f"{seconds}s", *more])


def only(run: FleetRun) -> Answer:
    (found,) = run.answers
    return found


def measured(home: str | None = None) -> list[str]:
    path = Path(home or os.environ["ORTUNE_HOME"], NOTES)
    return path.read_text().split() if path.exists() else []


def no_process_is_left(home: Path) -> bool:
    for one in psutil.process_iter():
        try:
            if one.pid != os.getpid() and one.environ().get("ORTUNE_HOME") == str(home):
                return False
        except psutil.Error:
            continue
    return True


# --- embedded -----------------------------------------------------------------------------------------------


def test_one_command_asks_this_machine(cli: CommandLine, mlp: str) -> None:
    done = cli.run_alone("fleet", "compare", mlp, "--candidate", mlp, "--runs", "20", "--json")
    (answer,) = done.document["questions"][0]["answers"]
    assert (answer["state"], answer["exit_code"]) == ("COMPLETE", done.code)
    assert errors_of("compare", answer["document"]) == []
    store = Store(cli.home / "ortune.db")
    (comparison,) = answer["rows"]["comparisons"]
    assert [one.id for one in store.trials_of(comparison)] == answer["rows"]["trials"]


def test_an_answer_is_kept_with_its_run(client: Session, made_up: None, square: Path) -> None:
    def see(run: FleetRun) -> None:
        if any(one.progress is not None and one.progress.total == 20 for one in run.answers):
            (client.store.folder / END).touch()

    both = [asked(square), asked(square, 600)]
    run = fleet.ask(both, session=client, on_change=see, name="two")
    assert (run.state, [one.state for one in run.answers]) == ("COMPLETE", ["COMPLETE"] * 2)
    assert fleet.fleet_run(run.id[:12]) == run
    assert [one.id for one in fleet.runs()] == [run.id]
    assert measured() == [one.key for one in run.answers]
    assert (client.store.folder / END).exists(), "no progress was shown"
    wait_until(lambda: no_process_is_left(client.store.folder))


def test_a_failure_has_its_error_and_its_log(client: Session, made_up: None, square: Path) -> None:
    run = fleet.ask([asked(square, 0.1, "--fail-if-slower", "1%")], session=client)
    answer = only(run)
    assert (run.state, answer.state, answer.exit_code) == ("FAIL", "FAIL", 1)
    assert answer.error is not None
    assert answer.error["message"] == "The worker crashed."
    assert "round 19" in fleet.logs(run.id, answer.host)
    again = fleet.resume(run.id, session=client)
    assert only(again).attempt == 1
    assert measured() == [answer.key]
    again = fleet.resume(run.id, again=True, session=client)
    assert (only(again).attempt, len(measured())) == (2, 2)


def test_cancel_ends_the_processes(client: Session, made_up: None, square: Path) -> None:
    control = Control()

    def stop(run: FleetRun) -> None:
        if only(run).state == "RUNNING" and measured():
            control.cancel(only(run).host)

    run = fleet.ask([asked(square, 600)], session=client, control=control, on_change=stop)
    assert (run.state, only(run).state) == ("CANCELLED", "CANCELLED")
    assert only(run).document is not None
    wait_until(lambda: no_process_is_left(client.store.folder))


def test_the_winners_of_a_search_are_compared_on_every_host(
    client: Session, made_up: None, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner = Configuration(key="k", label="w", spec={"model": {}, "session": {"intra_op_num_threads": 1}})
    found = Candidates(
        question=1, default=None, configurations=(winner,), hosts={"k": ("a",)}, left_out={}, without={}
    )
    monkeypatch.setattr(fleet, "candidates", lambda run, number: found)
    search = fleet.Asked(
        command="search", model=str(square), arguments=["--effort", "quick", "--budget", "1"]
    )
    run = fleet.ask([search], session=client, portability=True)
    assert (run.phase, len(run.questions)) == ("portability", 2)
    assert run.questions[1].arguments == ["--effort", "quick"]
    (second,) = run.answers_of(2).values()
    request = folders.read_json(folders.answer(second.key) / folders.REQUEST)
    assert request is not None
    command = request["command"][len(on_host.PROGRAM) :]
    assert command[:4] == ["compare", str(square), "--effort", "quick"]
    candidate = Path(command[command.index("--candidate") + 1])
    assert candidate.name == "winner-of-a.yaml"
    assert f"path: {square}" in candidate.read_text()


def test_a_question_that_is_cancelled_before_its_start_never_starts(
    client: Session, made_up: None, square: Path
) -> None:
    control = Control()
    control.cancel()
    run = fleet.ask([asked(square)], session=client, control=control)
    assert only(run).state == "CANCELLED"
    assert measured() == []


def test_a_request_that_arrives_twice_measures_once(client: Session, made_up: None, square: Path) -> None:
    run = fleet.ask([asked(square)], session=client)
    (prepared,) = RunFolder(run.id).questions()
    first = folders.read_json(folders.answer(only(run).key) / folders.STATE)
    assert first is not None
    again = on_host._start(prepared.request(only(run).key))
    assert (again["state"], again["finished_at"]) == ("COMPLETE", first["finished_at"])
    assert measured() == [only(run).key]


def test_a_killed_question_has_failed_and_leaves_no_process(
    client: Session, made_up: None, square: Path
) -> None:
    def kill(run: FleetRun) -> None:
        state = folders.read_json(folders.answer(only(run).key) / folders.STATE)
        if state and state["state"] == "RUNNING" and measured():
            with contextlib.suppress(psutil.NoSuchProcess):  # killed before, and not yet told
                psutil.Process(state["pid"]).kill()

    run = fleet.ask([asked(square, 600)], session=client, on_change=kill)
    assert only(run).state == "FAIL"
    assert only(run).error is not None
    assert "was interrupted" in only(run).error["message"]
    wait_until(lambda: no_process_is_left(client.store.folder), "A process is left.")


def test_an_answer_that_the_client_cannot_store_is_collected_later(
    client: Session, made_up: None, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("The disk is full.", hint="Free disk space.")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_document", full)
        run = fleet.ask([asked(square)], session=client)
    assert (run.state, only(run).state) == ("INCOMPLETE", "LOST")
    run = fleet.resume(run.id, session=client)
    assert (run.state, only(run).state, len(measured())) == ("COMPLETE", "COMPLETE", 1)


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("compare", ["--json"], "the fleet sets the output itself"),
        ("search", ["-o", "best.yaml"], "its file would stay on the host"),
        ("tune", [], "A fleet cannot be asked `tune`"),
        ("compare", ["--candidate", "nothing.yaml"], "nothing.yaml"),
    ],
)
def test_what_no_host_can_answer_is_refused_before_any_is_asked(
    client: Session, made_up: None, square: Path, command: str, arguments: list[str], says: str
) -> None:
    with pytest.raises(SpecError, match=says):
        fleet.ask([fleet.Asked(command=command, model=str(square), arguments=arguments)], session=client)
    assert fleet.runs() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "--candidte", "x"], "No such option"),
        (["compare"], "takes one model or file, but got 0"),
        (["compare", "a.onnx", "b.onnx"], "takes one model or file, but got 2"),
        (["search", "a.onnx", "--variants", "some"], "Invalid value"),
        (["hosts", "--scheduler", "10.0.0.1"], "plain TCP is used on loopback addresses only"),
        (["scheduler", "--address", "0.0.0.0:9"], "plain TCP is used on loopback addresses only"),
        (["host", "--name", "a", "--scheduler", "127.0.0.1:9", "--label", "x"], "must be NAME=VALUE"),
        (["hosts", "--scheduler", "tls://127.0.0.1:9"], "needs a certificate"),
        (["resume", "20200101-1"], "There is no fleet run"),
        (["run", "no.yaml"], "cannot be read"),
    ],
)
def test_bad_input_is_one_error(cli: CommandLine, arguments: list[str], says: str) -> None:
    done = cli.run("fleet", *arguments)
    assert done.code == 2
    assert says in done.err
    assert len(done.err.splitlines()) == 2


# --- processes behind certificates --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """Two hosts that answer made-up questions, and a third name with a certificate."""
    options = {"a": ["--label", "cpu=epyc", "--price-per-hour", "0.34"], "b": ["--label", "cpu=arm"]}
    with fleets.running(tmp_path_factory.mktemp("fleet"), options) as found:
        yield found
    assert found.left_over() == []


@pytest.fixture
def patient(processes: FleetProcesses) -> Iterator[FleetProcesses]:
    """The same hosts for questions that end when the test lets them."""
    yield processes
    processes.forget_end()


def at(of: FleetProcesses) -> dict[str, Any]:
    return {"scheduler": of.address, "certs": of.certs / "client"}


def test_hosts_have_facts_labels_and_prices(client: Session, processes: FleetProcesses) -> None:
    found = {one.name: one for one in fleet.hosts(**at(processes))}
    assert {name: one.labels for name, one in found.items()} == {"a": {"cpu": "epyc"}, "b": {"cpu": "arm"}}
    assert (found["a"].price_per_hour, found["b"].price_per_hour) == (0.34, None)
    assert found["a"].kind == found["b"].kind
    assert [one.refused for one in found.values()] == ["", ""]


def test_labels_select_hosts(client: Session, processes: FleetProcesses, square: Path) -> None:
    run = fleet.ask([asked(square)], on="cpu=arm", session=client, **at(processes))
    assert [one.host for one in run.answers] == ["b"]
    run = fleet.ask([asked(square)], one_of_each_kind=True, session=client, **at(processes))
    assert [one.host for one in run.answers] == ["a"]
    with pytest.raises(SpecError, match=r"There is no host `c`"):
        fleet.ask([asked(square)], on="a,c", session=client, **at(processes))


def test_a_model_with_external_data_travels_once(
    client: Session, processes: FleetProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_shared_disk(monkeypatch)
    model = tiny_models.external_data(tmp_path / "far" / "big.onnx")
    run = fleet.ask([asked(model)], on="a", session=client, **at(processes))
    (sent,) = run.questions
    there = processes.home("a") / "fleet" / "models" / sent.model.sha256
    names = sorted(one.name for one in there.iterdir())
    assert "big.onnx" in names
    assert len(names) == 3  # the model, its data, and the list of both
    document = only(run).document
    assert document is not None
    assert document["arguments"][1] == str(there / "big.onnx")
    times = {one: (there / one).stat().st_mtime_ns for one in names}
    fleet.ask([asked(model)], on="a", session=client, **at(processes))
    assert {one: (there / one).stat().st_mtime_ns for one in names} == times


def without_shared_disk(patch: pytest.MonkeyPatch) -> None:
    """Hosts of another machine do not see the client's files; those of this machine would use them."""
    request = PreparedQuestion.request
    patch.setattr(PreparedQuestion, "request", lambda self, key: {**request(self, key), "near": {}})


def test_a_killed_client_is_resumed_and_nothing_is_measured_twice(
    client: Session, patient: FleetProcesses, square: Path
) -> None:
    before = {host: len(patient.measured(host)) for host in patient.hosts}
    killed = threading.Event()

    class Killed(BaseException):
        pass

    def kill(run: FleetRun) -> None:
        if all(len(patient.measured(host)) > before[host] for host in before) and not killed.is_set():
            killed.set()
            raise Killed

    with pytest.raises(Killed):
        fleet.ask([asked(square, 600)], session=client, on_change=kill, **at(patient))
    (run,) = fleet.runs()
    assert {one.state for one in run.answers} & {"RUNNING", "WAITING"}
    for host in patient.hosts:
        patient.end_questions(host)
    run = fleet.resume(run.id, session=client)
    assert (run.state, {one.attempt for one in run.answers}) == ("COMPLETE", {1})
    assert {host: len(patient.measured(host)) - before[host] for host in before} == {"a": 1, "b": 1}


def test_another_process_cancels_one_host(client: Session, patient: FleetProcesses, square: Path) -> None:
    cancelling: list[threading.Thread] = []

    def stop(run: FleetRun) -> None:
        states = {one.host: one.state for one in run.answers}
        if not cancelling and states == {"a": "RUNNING", "b": "RUNNING"}:
            cancelling.append(threading.Thread(target=fleet.cancel, args=(run.id, "b")))
            cancelling[0].start()
        if states["b"] == "CANCELLED":
            patient.end_questions("a")

    run = fleet.ask([asked(square, 600)], session=client, on_change=stop, **at(patient))
    cancelling[0].join(WAIT_S)
    states: Mapping[str, str] = {one.host: one.state for one in run.answers}
    assert states == {"a": "COMPLETE", "b": "CANCELLED"}


def test_a_restarted_host_and_a_restarted_scheduler_lose_no_answer(
    client: Session, processes: FleetProcesses, square: Path
) -> None:
    before = len(processes.measured("b"))
    done = threading.Event()

    def restart(run: FleetRun) -> None:
        if not done.is_set() and len(processes.measured("b")) > before:
            done.set()
            processes.end("scheduler", signal.SIGKILL)
            processes.end("b", signal.SIGKILL)
            processes.start_scheduler()
            processes.start_host("b", "--label", "cpu=arm", wait=False)

    run = fleet.ask([asked(square, 6)], on="b", session=client, on_change=restart, **at(processes))
    assert done.is_set()
    assert (only(run).state, only(run).attempt) == ("COMPLETE", 1)
    assert len(processes.measured("b")) == before + 1


def test_a_host_with_a_foreign_certificate_stays_outside(
    client: Session, processes: FleetProcesses, tmp_path: Path
) -> None:
    forged = FleetProcesses(tmp_path, ["evil"])
    forged.address = processes.address
    try:
        forged.start_host("evil", wait=False)
        wait_until(lambda: "no connection" in forged.log("evil"), "the refusal")
    finally:
        forged.close()
    assert "certificate verify failed" in forged.log("evil")
    assert "evil" not in {one.name for one in fleet.hosts(**at(processes))}
    with pytest.raises(SpecError, match=r"The fleet cannot be used"):
        fleet.hosts(processes.address, forged.certs / "client")
    with pytest.raises(SpecError, match=r"The fleet cannot be used"):
        fleet.hosts(f"tcp://{processes.address}")


def test_a_host_with_other_code_is_refused_with_the_fix(
    client: Session, processes: FleetProcesses, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_host, "code_hash", lambda: "another")
    assert {one.refused[:20] for one in fleet.hosts(**at(processes))} == {"It runs other code. "}
    with pytest.raises(SpecError, match=r"No host may be asked \(a: It runs other code\. Install ORTune"):
        fleet.ask([asked(square)], session=client, **at(processes))


def test_a_real_comparison_waits_for_the_machine_and_is_in_the_store_of_the_client(
    client: Session, tmp_path: Path, mlp: str
) -> None:
    said: list[str] = []
    taken, free = threading.Event(), threading.Event()

    def see(run: FleetRun) -> None:
        progress = only(run).progress
        said.append("" if progress is None else progress.text)
        if "in line behind its user: other work" in said[-1]:
            free.set()

    def work(queue: Path) -> None:
        with MachineQueue(queue).turn("its user", "other work"):
            taken.set()
            free.wait(WAIT_S)

    with fleets.running(tmp_path / "real", {"a": []}, made_up=False) as real:
        busy = threading.Thread(target=work, args=(real.folder / "queue-a",))
        busy.start()
        assert taken.wait(WAIT_S)
        question = fleet.Asked(command="compare", model=mlp, arguments=["--candidate", mlp, "--runs", "20"])
        run = fleet.ask([question], session=client, on_change=see, **at(real))
        busy.join(WAIT_S)
        assert free.is_set(), said
        there = Store(real.home("a") / "ortune.db")
    answer = only(run)
    assert answer.error is None
    (comparison,) = answer.rows["comparisons"]
    assert client.store.comparison(comparison).owner == "fleet host a"
    for one in answer.rows["trials"]:
        here, original = client.store.trial(one), there.trial(one)
        assert (here.owner, here.spec["model"]["path"]) == ("fleet host a", mlp)
        assert here.facts["latencies_s"] == original.facts["latencies_s"]
        assert dataclasses.replace(here, owner="", spec={}) == dataclasses.replace(
            original, owner="", spec={}
        )
    assert real.left_over() == []


# --- the command --------------------------------------------------------------------------------------------


def options(of: FleetProcesses) -> list[str]:
    return ["--scheduler", of.address, "--certs", str(of.certs / "client")]


def test_ctrl_c_ends_the_questions_on_all_hosts(
    cli: CommandLine, processes: FleetProcesses, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {host: len(processes.measured(host)) for host in processes.hosts}
    command = cli.start("fleet", "compare", str(square), "--budget", "600s", *options(processes))
    wait_until(lambda: all(len(processes.measured(one)) > before[one] for one in before))
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=WAIT_S)
    assert command.returncode == 130, err
    assert "The answers so far are kept: `ortune fleet show 2" in err
    monkeypatch.setenv("ORTUNE_HOME", str(cli.home))
    (run,) = fleet.runs()
    assert {one.state for one in run.answers} == {"CANCELLED"}
    wait_until(
        lambda: not [one for one in processes.working() if "on_host.PROGRAM" not in one], "A process is left."
    )


def test_a_study_asks_every_question(cli: CommandLine, processes: FleetProcesses, square: Path) -> None:
    study = cli.home.parent / "study.yaml"
    study.write_text(
        f"models: {square}\nhosts: b\nbudget: 1\n"
        "questions:\n- compare: {candidate: preset:cpu-latency}\n- sweep: {batch_size: '1,2'}\n"
    )
    done = cli.run_alone("fleet", "run", str(study), *options(processes))
    assert "2 questions, b" in done.err
    asked = [one for one in done.err.splitlines() if one.startswith("b · question")]
    assert {one.split(" · ")[1] for one in asked} == {"question 1 of 2", "question 2 of 2"}
    assert done.code == 0, done.err


def test_the_exit_code_is_the_worst_of_the_hosts(
    cli: CommandLine, processes: FleetProcesses, square: Path
) -> None:
    line = ["fleet", "compare", str(square), "--budget", "1s", "--fail-if-slower", "1%", "--on", "a"]
    done = cli.run_alone(*line, *options(processes))
    assert done.code == 1
    assert "The worker crashed." in done.out + done.err


def test_cancel_without_a_waiting_client_collects_what_there_is(
    cli: CommandLine, processes: FleetProcesses, square: Path
) -> None:
    before = len(processes.measured("a"))
    line = ["fleet", "compare", str(square), "--budget", "600s", "--on", "a", *options(processes)]
    killed = cli.start(*line)
    wait_until(lambda: len(processes.measured("a")) > before)
    killed.kill()
    killed.communicate()
    (listed,) = cli.run_alone("fleet", "runs", "--json").document["runs"]
    assert listed["state"] == "INCOMPLETE"
    done = cli.run_alone("fleet", "cancel", listed["run"][:12], "--json")
    (answer,) = done.document["questions"][0]["answers"]
    assert (done.document["state"], answer["state"]) == ("CANCELLED", "CANCELLED")
    assert answer["document"]["answer"] == 42  # the document of the cancelled command
    assert "round" in cli.run_alone("fleet", "logs", listed["run"], "a").out
