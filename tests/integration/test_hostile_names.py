"""Hostile names in every export: they stay text in files, reports, tables, logs and terminals.

Names of models, tensors, nodes, configurations, settings, files and persons are foreign text. Each export of
a hostile name is compared with that of a plain one: outside strings and comments both are the same.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import html.parser
import io
import json
import re
import shlex
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from markdown_it import MarkdownIt
from onnx import helper

import ortune
from core.api import exporting
from core.api.session import Session
from core.cli import run
from core.evidence.comparison import Comparison, Contestant
from core.evidence.measurement import Trial
from core.run.bundle.opening import open_configuration
from core.run.export_source import ExportSource
from core.show.escapes import JOINER, is_formula
from core.show.export import FORMATS, ExportFormat, format_named
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.subjects import find
from core.spec import spec_from_dict, spec_from_yaml
from core.store import STORE_NAME, Store, audit
from core.store.library import import_file
from core.store.tags import Change
from core.wire.errors import SpecError
from core.wire.files import file_stem
from core.wire.units import visible
from core.worker.models import inspect_model
from dashboard.report.page import html_of
from tests import builders, tiny_models
from tests.recorded import recorded_store

PLAIN = "plain"
NAMES: Mapping[str, str] = {
    "html": '</script><script>alert(1)</script>"><img src=x onerror=alert(2)> --></details>',
    "link": "![p](http://evil.example/p.png) [l](http://evil.example) <http://evil.example> www.evil.example",
    "markdown": "`x` ``` *b* _c_ ~d~ @you #1 GH-1 | $x$ %{y} :skull: \\",
    "ansi": "\x1b]0;owned\x07\x1b[31mred\x9b2J\x7f\b",
    "lines": "a\nEVIL = 1\r\n# EVIL\r// EVIL",
    "other lines": "a\u2028EVIL = 1\u2029EVIL\x85EVIL\x0bEVIL\x0cEVIL\x1cEVIL",
    "right to left": "\u202egnp.exe\u2066\u200f",
    "quotes": "'\"\\ \"\"\" ''' ` \\",
    "templates": "${x} #{y} %s %(a)s {0} {path!r} {{z}} $(touch pwned) `touch pwned` $$ \\x41 \\u0041",
    "python": "'); __import__('os').system('touch pwned'); ('\"\"\"\nraise SystemExit(7)\n\"\"\"",
    "c": '*/ // ?? ??/ R"(x)" /* \\',
    **{f"begins with {one!r}": f"{one}1+cmd|' /C calc'!A0" for one in "=+-@\t\uff1d"},
    "parents": "../../x",
    "root": "/etc/passwd",
    "drive": "C:\\x\\..\\y",
    "zero": "a\0b",
    "long": "x" * 300,
    "dots": "...",
    "device": "CON",
    "device with ending": "aux.txt",
    "option": "-rf",
    "home": "~root/.hidden",
    "tag": "!!python/object/apply:os.system [touch pwned]",
    "anchor": "&a *a",
    "mapping": "key: {a: [b, *c]} # d",
    **{
        f"yaml {one!r}": one
        for one in ("- item", "? x", "%YAML 9", "---", "null", "1e3", "yes", "|", ">", " ")
    },
    "beyond": "𝕏é\N{NO-BREAK SPACE}\N{ZERO WIDTH JOINER}",
}
# of these a store has results: the others differ for readers of code and of file names only
STORED = (
    *("html", "link", "markdown", "ansi", "lines", "other lines", "right to left", "quotes", "templates"),
    *("begins with '='", "zero", "long", "yaml '- item'", "beyond"),
)
OPENVINO = "OpenVINOExecutionProvider"


def printable(text: str) -> bool:
    """Whether a terminal or an editor shows `text` as it is: no escape, no other line break, no direction."""
    return text.replace("\n", "").isprintable()


# --- the store ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A store in which foreign texts are hostile names: a comparison and a profile for each."""

    store: Store
    ids: Mapping[str, tuple[str, str, str]]  # key of the name -> comparison, its first trial, profile


# keys of results whose values are foreign text
FOREIGN = (
    "name",
    "label",
    "owner",
    "model_name",
    "model",
    "variant_of",
    "steps",
    "values",
)


def named(data: Any, name: str, known: Mapping[str, str], key: str = "") -> Any:
    """Replace foreign texts in stored data by a name, and ids by those that `known` maps them to."""
    if isinstance(data, dict):
        found = {key: named(value, name, known, key) for key, value in data.items()}
        return {**found, "path": f"m{name}"} if key == "model" and "path" in found else found
    if isinstance(data, list | tuple):
        return [named(one, name, known) for one in data]
    if isinstance(data, str):
        return name if data and key in FOREIGN else known.get(data, data)
    return data


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    store = Store(tmp_path_factory.mktemp("hostile") / STORE_NAME)
    ids = {}
    with recorded_store() as recorded:
        comparison = next(one for one in recorded.comparisons(limit=500) if not one.study)
        trials = recorded.trials_of(comparison.id)
        profile = recorded.trial(recorded.trials(kind="profile")[0].id)
    for number, key in enumerate((PLAIN, *STORED)):
        name = NAMES.get(key, key)
        known = {comparison.id: f"{number:04x}{comparison.id[4:]}"}
        known |= {one.id: f"{number:04x}{one.id[4:]}" for one in (profile, *trials)}
        made = Comparison(**named(asdict(comparison), name, known))
        made = replace(made, contestants=tuple(Contestant(**one) for one in made.contestants))
        renamed = [Trial(**named(asdict(one), name, known)) for one in (*trials, profile)]
        store.create_comparison(made, renamed[:-1])
        store.create_trial(renamed[-1])
        for change in ({"add": (name,)}, {"note": name}):
            with contextlib.suppress(SpecError):  # no control characters, no comma, not too long
                store.mark([renamed[0].id], Change(**change))
        ids[key] = made.id, renamed[0].id, renamed[-1].id
    return Kept(store=store, ids=ids)


@pytest.fixture
def home(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTUNE_HOME", str(kept.store.folder))
    monkeypatch.setenv("COLUMNS", "200")
    return kept.store.folder


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What a command prints; it must succeed."""
    capsys.readouterr()
    assert run(list(args)) == 0, capsys.readouterr().err
    done = capsys.readouterr()
    assert printable(done.err)
    return done.out


# --- code and configurations --------------------------------------------------------------------------------

LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"|(//|#)[^\n]*')


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.mlp(tmp_path_factory.mktemp("model") / "m.onnx")


def source_of(model: Path, name: str, provider: str = OPENVINO, path: str = "m{}") -> ExportSource:
    """A complete trial with `name` in every place that takes any text."""
    info = inspect_model(str(model))
    options = {"device_type": "CPU", name: name}
    spec = spec_from_dict(
        {
            "model": {"path": path.format(name), "sha256": info["sha256"]},
            "session": {
                "providers": [{"name": provider, "options": options}] if provider else [],
                "disabled_optimizers": [name],
                "session_config_entries": {name: name},
                "run_config_entries": {name: name},
                "free_dimension_overrides": {name: 2},
                "expert": True,
            },
            "workload": {"feed_values": {name: 0.5}, "dims": {name: 2}},
        }
    )
    tensors: Any = {side: [{**one, "name": name} for one in info[side]] for side in ("inputs", "outputs")}
    shapes = {side: [{**one, "shape": [2, 4]} for one in tensors[side]] for side in tensors}
    guard = {"breach": True, "why": name}
    about = {"name": name, "sha256": info["sha256"], "precision": "fp32", "variant_of": name, "steps": name}
    environment = {**builders.MACHINE, "os": name, "cpu": {**builders.MACHINE["cpu"], "model": name}}
    result: Any = {
        **shapes,
        **{"batch_size": 2, "guard": guard, "environment": environment, "model": about, "holds_reason": name},
        "contrasts": [builders.contrast(0.5, holds_reason=name, something_else=name)],
    }
    trial = builders.trial(of=spec, model_name=name, result=result, owner=name)
    return ExportSource(trial=trial, info={**info, **tensors, "batch_axes": {name: 0}})


def skeleton(text: str) -> str:
    """The text without what strings and comments hold."""
    return LITERALS.sub(lambda one: one[1] or '""', text)


def python(text: str) -> str:
    tree = ast.parse(text)
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            one.value = ""
    return ast.dump(tree)


def shell(text: str) -> str:
    *comments, command = text.partition("exec ")[0].splitlines(), text.partition("exec ")[2]
    assert all(line.startswith("#") for line in comments[0])
    words = shlex.split(command)
    assert shlex.join(words) == command.rstrip("\n")
    return words[0]


def structure(text: str) -> str:
    """Types and order of a YAML document; it has no tags, anchors and references."""
    events = list(yaml.parse(text))
    assert not [one for one in events if getattr(one, "tag", None) or getattr(one, "anchor", None)]
    yaml.safe_load(text)
    return " ".join(type(one).__name__ for one in events)


READERS = {"python": python, "perf-test": shell, "yaml": structure, "olive": structure, "openvino": structure}


@pytest.mark.parametrize("whole", [False, True], ids=["short", "whole"])
@pytest.mark.parametrize("format_", FORMATS, ids=lambda one: one.name)
def test_a_name_never_leaves_its_string_or_comment(model: Path, format_: ExportFormat, whole: bool) -> None:
    if whole and format_.name != "yaml":
        return
    read = READERS.get(format_.name, skeleton)
    provider = "" if format_.name == "javascript" else OPENVINO

    def written(name: str) -> str:
        what = replace(source_of(model, name, provider), whole=whole)
        return format_.text(what, f"we accept {name}")

    expected = read(written(PLAIN))
    for key, name in NAMES.items():
        if format_.name == "perf-test" and not name.isprintable():
            with pytest.raises(SpecError, match="not printable"):
                written(name)
            continue
        text = written(name)
        assert printable(text), key
        assert read(text) == expected, key
        assert text.encode(), key


def test_what_a_file_says_is_read_back_as_it_was(model: Path) -> None:
    for key, name in NAMES.items():
        what = source_of(model, name)
        script = ast.walk(ast.parse(written_as("python", what)))
        assert {f"m{name}", name} <= {one.value for one in script if isinstance(one, ast.Constant)}, key
        spec = spec_from_dict(what.trial.spec)
        for whole in (False, True):
            text = written_as("yaml", replace(what, whole=whole))
            found = spec_from_yaml(text, expert=True)
            assert found.model_copy(update={"model": spec.model}) == spec, key
            assert found.model.path == spec.model.path, key
        document = yaml.safe_load(text)
        assert document["environment"]["os"] == document["measured"]["model"]["name"] == name, key
        if name.isprintable():
            path = source_of(model, name, path="{}m")
            for one, last in ((what, f"m{name}"), (path, f"./{name}m" if name[0] == "-" else f"{name}m")):
                assert shlex.split(written_as("perf-test", one).partition("exec ")[2])[-1] == last, key


def written_as(format_: str, what: ExportSource) -> str:
    return format_named(format_).text(what, "accepted")


# --- files and their names ----------------------------------------------------------------------------------

FILE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,130}[A-Za-z0-9])?")
DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def is_file_name(name: str) -> bool:
    """Whether Linux, macOS and Windows take `name` as the name of a file, and no command as an option."""
    return FILE_NAME.fullmatch(name) is not None and DEVICE.match(name) is None


def test_names_of_files_are_valid_everywhere_and_members_stay_inside(model: Path) -> None:
    for key, name in NAMES.items():
        assert is_file_name(f"{file_stem(name)}.yaml"), key
        what = source_of(model, name)
        for format_ in FORMATS:
            assert is_file_name(format_.file_name(what)), (key, format_.name)
        packed = replace(what, trial=replace(what.trial, spec=with_path(what.trial, model)))
        for format_ in (one for one in FORMATS if one.pack is not None):
            content = format_.content(packed, "accepted")
            if format_.ending.endswith(".zip"):
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    parts = [part for one in archive.namelist() for part in one.split("/")]
                assert all(map(is_file_name, parts)), key
            else:
                onnx.checker.check_model(onnx.load_from_string(content))


def with_path(trial: Trial, model: Path) -> dict[str, Any]:
    return {**trial.spec, "model": {**trial.spec["model"], "path": str(model)}}


def test_a_bundle_of_a_hostile_model_holds_its_files_and_says_its_names_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    name = " ".join(one for key, one in NAMES.items() if key not in ("long", "zero"))
    names = [f"{side} {name}" for side in ("in", "out", "node")]
    path = tmp_path / f"{name.replace('/', '')[:50]}.onnx"
    ends = [[tiny_models.value(one, [4, 4])] for one in names[:2]]
    tiny_models.save(path, [helper.make_node("Relu", names[:1], names[1:2], names[2])], *ends)
    with Session() as session:
        store = session.store
        record = import_file(store, path, name=name, source="file")
        spec = spec_from_dict({"model": {"path": str(path), "sha256": record.sha256}})
        shapes = {"inputs": [{"name": names[0], "dtype": "float32", "shape": [4, 4]}]}
        shapes["outputs"] = [{"name": names[1], "dtype": "float32", "shape": [4, 4]}]
        result: Any = {**shapes, "batch_size": 4, "environment": {**builders.MACHINE, "os": name}}
        trial = builders.trial(
            of=spec, model_name=name, model_sha256=record.content_sha256, owner=name, result=result
        )
        store.create_trial(trial)
        bundle = tmp_path / "bundle.zip"
        exporting.export(trial.id, "bundle", bundle, session=session)
    with zipfile.ZipFile(bundle) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    assert all(is_file_name(part) for one in members for part in one.split("/"))
    for one in ("config.yaml", "run.py", "requirements.txt"):
        assert printable(members[one].decode()), one
    assert names[0] in [
        one.value for one in ast.walk(ast.parse(members["run.py"])) if isinstance(one, ast.Constant)
    ]
    assert yaml.safe_load(members["config.yaml"])["environment"]["os"] == name
    assert json.loads(members["bundle.json"])["model"]["name"] == name
    assert_markdown_is_plain(members["README.md"].decode())
    with open_configuration(bundle, within=tmp_path) as held:
        assert held.name == name


# --- tables, reports and terminals --------------------------------------------------------------------------

OURS = re.compile(r"</?(?:details|summary|sub|span)>")


def marks(text: str) -> list[str]:
    """What Markdown makes of a text, without the text itself."""
    found = []
    for block in MarkdownIt("commonmark").enable("table").parse(text):
        found.append(block.type)
        for one in block.children or []:
            if one.type == "html_inline":
                assert OURS.fullmatch(one.content), one.content
            elif one.type not in ("text", "text_special"):
                found.append(one.type)
                assert one.type not in ("link_open", "image"), one
        if block.type == "html_block":
            found.append(re.sub(r">[^<]*<", "><", block.content))
    return found


def assert_markdown_is_plain(text: str) -> None:
    """No element of a page, no link, and nothing that GitHub replaces."""
    assert printable(text.replace(JOINER, ""))
    marks(text)
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    outside = re.sub(r"(`+) ?.*? ?\1", "", outside)
    assert not re.search(r"https?://|www\.\w|@\w|(?<!&)#\d|GH-\d|:skull:", outside), outside


def test_tables_as_csv_and_markdown_hold_names_as_text(
    kept: Kept, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "history", "--limit", "1000", "--format", "csv")
    assert printable(text)
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) == 1
    assert not [cell for row in rows for cell in row if is_formula(cell)]
    shown = [visible(NAMES[key]) for key in STORED]
    expected = {f"'{one}" if is_formula(one) else one for one in shown}
    assert {row[rows[0].index("model")] for row in rows[1:]} == {PLAIN, *expected}
    assert_markdown_is_plain(said(capsys, "history", "--limit", "1000", "--format", "md"))


class Elements(html.parser.HTMLParser):
    """The elements of a page with the names of their attributes, without the code spans of a sentence."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "code":
            self.found.append((tag, *(name for name, _ in attrs)))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def figures(text: str) -> tuple[set[str], set[str]]:
    """Elements and templates in the data of a report's plots."""
    match = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    data = json.dumps(json.loads(match[1]))
    assert "$x$" not in data  # a formula
    return set(re.findall(r"<[^<>]*>", data)), set(re.findall(r"%\{[^}]*\}", data))


@pytest.mark.parametrize("kind", ["comparison", "trial", "profile"])
def test_reports_hold_names_as_text(kept: Kept, kind: str) -> None:
    at = ("comparison", "trial", "profile").index(kind)

    def written(key: str) -> tuple[str, str]:
        about = find(kept.store, [kept.ids[key][at]])
        return html_of(about, kept.store), markdown(compose(about, kept.store))

    page, text = written(PLAIN)
    elements, plots, blocks = Elements(page).found, figures(page), marks(text)
    for key in STORED:
        page, text = written(key)
        read = Elements(page)
        assert read.found == elements, key
        assert visible(NAMES[key])[:99] in "".join(read.texts), key
        assert figures(page)[0] <= plots[0], key
        assert figures(page)[1] <= plots[1], key
        assert printable(re.sub(r"(?s)<script.*?</script>", "", page)), key
        assert_markdown_is_plain(text)
        assert marks(text) == blocks, key
    policy = re.search(r'content="(default-src \'none\';[^"]*)"', page)
    assert policy is not None
    assert "unsafe-inline" not in policy[1].partition("script-src")[2].partition(";")[0]


def test_terminals_get_no_control_character_and_json_the_names_themselves(
    kept: Kept, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printable(said(capsys, "history", "--limit", "1000"))
    assert printable(said(capsys, "history", "--limit", "1000", "--wide"))
    for key in STORED:
        name = NAMES[key]
        for one in kept.ids[key]:
            assert printable(said(capsys, "show", one)), key
            text = said(capsys, "show", one, "--json")
            assert text.isascii(), key
            assert text.count("\n") == 1, key
            document = json.loads(text)
            assert (document["trials"][0] if "trials" in document else document)["model"]["name"] == name, key
        text = said(capsys, "report", kept.ids[key][1], "--format", "md", "--json")
        assert text.isascii(), key
        assert json.loads(text)["id"] == kept.ids[key][1], key


def test_half_a_character_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a file name that is not UTF-8: neither the store nor a file takes it."""
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    half = "m\udcff.onnx"
    for call in (
        lambda: ortune.inspect(Path(half)),
        lambda: ortune.tune({"model": {"path": half}}),
        lambda: ortune.compare([half]),
        lambda: ortune.history(search=half),
        lambda: ortune.export(half),
    ):
        with pytest.raises(SpecError, match=r"`m\\udcff.onnx` is not UTF-8 text"):
            call()
    for args in (["inspect", half], ["tag", "abcdef", "--label", half], ["history", "--search", half]):
        assert run(args) == 2
        assert "is not UTF-8 text" in capsys.readouterr().err


# --- the audit log ------------------------------------------------------------------------------------------


def test_the_audit_log_has_one_line_for_each_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    texts = [*NAMES.values(), "lone \ud800 surrogate", "cut " * 1000]
    for name in texts:
        audit.record("upload", name, who=name, file=name, ids=[name])
    said(capsys, "audit", "-o", str(tmp_path / "copy.jsonl"))
    for path in (tmp_path / "home" / "audit" / "audit.jsonl", tmp_path / "copy.jsonl"):
        lines = path.read_bytes().decode("ascii").split("\n")
        assert all(line.isprintable() for line in lines)
        found = [json.loads(line) for line in lines if line][: len(texts)]
        assert [(one["who"], one["what"], one["file"], one["ids"]) for one in found] == [
            (*[name[: audit.MOST_TEXT]] * 3, [name]) for name in texts
        ]
    assert audit.check().problems == ()
    assert printable(said(capsys, "audit", "--limit", "1000"))
    assert len(json.loads(said(capsys, "audit", "--limit", "1000", "--json"))["entries"]) == len(texts) + 1
