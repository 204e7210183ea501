"""Numbers and messages as they are written on the screen."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies
from markdown_it import MarkdownIt
from markdown_it.token import Token

from core.show.table import Column, tabulate
from core.show.verdict import sentence
from core.spec.settings import check_range, trial_setting
from core.wire.errors import SpecError, range_rule
from core.wire.units import visible
from dashboard import fields, format
from dashboard.widgets import tables


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0008123, "0.8123 ms"),
        (0.00002251, "0.02251 ms"),
        (1.5, "1,500 ms"),
        (0.0, "0 ms"),
        (None, "–"),
        (12.3456, "12,346 ms"),
    ],
)
def test_times_are_milliseconds_with_four_digits(seconds: float | None, text: str) -> None:
    assert format.ms(seconds) == text


def test_an_interval_says_which_side_is_open() -> None:
    assert format.interval_ms(0.001, 0.002) == "95 % CI [1.000, 2.000] ms"
    assert format.interval_ms(0.001, None) == "95 % CI: 1.000 ms or more"
    assert format.interval_ms(None, None) == "interval unknown: too few runs"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (15.4 * 2**20, "15.4 MiB"),
        (3 * 2**40, "3.00 TiB"),
        (None, "–"),
    ],
)
def test_sizes_have_binary_units(count: float | None, text: str) -> None:
    assert format.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (12, "12 s"),
        (119.7, "120 s"),
        (125, "2 min 05 s"),
        (300, "5 min"),
        (3599.6, "1 h"),
        (7500, "2 h 05 min"),
        (86_400, "1 d"),
        (97_200, "1 d 3 h"),
        (None, "–"),
    ],
)
def test_durations_are_for_people(seconds: float | None, text: str) -> None:
    assert format.duration(seconds) == text


def test_changes_carry_their_sign() -> None:
    assert format.percent(0.032) == "+3.2 %"
    assert format.percent(-0.5) == "−50.0 %"


def test_markdown_in_names_is_literal_and_code_stays() -> None:
    assert format.plain("a_b [x](y) `c_d` $z$ :red[w]") == r"a\_b \[x\](y) `c_d` \$z\$ \:red\[w\]"
    assert format.plain("**a**\n5.2 ms -5 %") == "\\*\\*a\\*\\*\n5.2 ms -5 %"


PICTURE = "![x](http://x.example/x.png)"
_PIECES = (
    *("`", "``", "\\", PICTURE, "[a](b)", "<b>", "&amp;", "&#60;", "*", "__", "~~", "#", ">", "|", "$", "\n"),
    *("- ", "+ ", "1. ", "2) ", "---", "===", ":red[", "a", " ", ":", "]", "(", "\u202e", "\x1b[1m", "é"),
)
_NASTY = strategies.lists(strategies.sampled_from(_PIECES), max_size=12).map("".join)
_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def inlines(markdown: str) -> list[Token]:
    """The inline tokens; there is no other block than paragraphs."""
    blocks = _MARKDOWN.parse(markdown)
    assert {one.type for one in blocks} <= {"paragraph_open", "inline", "paragraph_close"}, markdown
    return [token for block in blocks for token in block.children or []]


def without(text: str, signs: str) -> str:
    return "".join(one for one in text if one not in signs)


@given(_NASTY)
@settings(deadline=None)
def test_no_text_becomes_markup(text: str) -> None:
    text = "\n".join(line.strip() for line in text.split("\n"))
    tokens = inlines(format.plain(text))
    assert {one.type for one in tokens} <= {"text", "text_special", "code_inline", "softbreak", "hardbreak"}
    shown, wanted = "".join(one.content for one in tokens), "".join(map(visible, text.split("\n")))
    assert without(shown, " `\u2060") == without(wanted, " `")


@given(_NASTY)
@settings(deadline=None)
def test_no_name_leaves_its_code_span(name: str) -> None:
    [token] = inlines(format.code(name))
    assert token.type == "code_inline"
    assert token.content.strip() == visible(name).strip()
    assert {one.type for one in inlines(format.label(name))} <= {"text", "code_inline"}


@pytest.mark.parametrize("text", [f"The node `{PICTURE}`` is", f"`a\n\n{PICTURE}`", f"a` {PICTURE} ``"])
def test_a_picture_does_not_hide_between_backticks(text: str) -> None:
    assert PICTURE not in format.plain(text).replace(f"`{PICTURE}`", "")
    assert "image" not in {one.type for one in inlines(format.plain(text))}


@pytest.mark.parametrize(
    "text",
    [
        *(":material/verified:", ":material_verified:", ":streamlit:"),
        *("https://x.example", "HTTP://x.example", "www.x.example"),
        *("a -> b", "->", "a <-> b", "a <- b", "a -- b", "a >= b", "a <= b", "a ~= b"),
    ],
)
def test_what_streamlit_replaces_in_text_stays_as_it_is(text: str) -> None:
    """Icons, links and arrows: Streamlit looks for them after it has read the escapes."""
    shown = "".join(one.content for one in inlines(format.plain(text)))
    replaced = r"(?i):material[/_]\w+:|:streamlit:|https?://|www\.|(?:^|\s)(?:<->|->|<-|--|[<>~]=)(?:\s|$)"
    assert not re.search(replaced, shown)
    assert without(shown, "\u2060") == text


def test_no_icon_appears_in_code() -> None:
    """Streamlit replaces the beginning of an icon's name everywhere before it reads the Markdown."""
    assert ":material/" not in format.plain("a `:material/verified:`") + format.plain(":material/verified:")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("input_ids", "input_ids"),
        ("batch", "batch"),
        ("_x_", "`_x_`"),
        ("a*b*", "`a*b*`"),
        ("x:red[y]", "`x:red[y]`"),
    ],
)
def test_a_name_in_a_label_is_plain_where_it_can_be(name: str, text: str) -> None:
    assert format.label(name) == text


def test_long_text_is_cut_in_the_middle() -> None:
    assert format.short("abcdefghij", 7) == "abc…hij"
    assert format.short("abc", 7) == "abc"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "on"),
        (False, "off"),
        (4, "4"),
        ({"a": 1}, "a=1"),
        (("CUDAExecutionProvider", "CPUExecutionProvider"), "CUDA → CPU"),
        ((), "none"),
        (None, "default"),
    ],
)
def test_values_of_settings_are_written_as_people_do(value: object, text: str) -> None:
    assert format.value(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.99444, "99.44 %"), (0.0, "0.00 %"), (1.0, "100.00 %"), (None, "–")]
)
def test_a_share_of_rows(fraction: float | None, text: str) -> None:
    assert format.share(fraction) == text


def test_an_interval_of_a_share_or_why_there_is_none() -> None:
    assert format.interval_share(0.98, 0.99845) == "95 % CI [98.00 %, 99.84 %]"
    assert format.interval_share(None, None) == "interval unknown: no samples"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1, 1_048_576, "Batch size must be 1 to 1,048,576"),
        (0, None, "Batch size must be 0 or more"),
        (None, 8, "Batch size must be 8 or less"),
    ],
)
def test_a_range_is_said_in_words(low: int | None, high: int | None, text: str) -> None:
    assert range_rule("Batch size", low, high) == text


def test_a_setting_out_of_its_range_is_said_by_its_name_on_the_screen() -> None:
    with pytest.raises(SpecError, match=r"^Batch size must be 1 to 1,048,576; got 2,000,000\.$"):
        check_range(trial_setting("batch_size"), 2_000_000)
    with pytest.raises(SpecError, match=r"^Minutes to wait must be 1 to 120; got 500\.$"):
        fields.in_range("minutes to wait", 500, 1, 120)


def test_what_results_of_before_called_not_steady_is_a_sentence() -> None:
    assert sentence("not_steady: the latency still moved.") == "The latency still moved."


def test_a_cell_shows_no_marks_of_code() -> None:
    table = tabulate(["Switch `allow_fallback` on."], (Column("what to do"), lambda one: one))
    assert tables.frame(table)["What to do"].to_list() == ["Switch allow_fallback on."]
