"""Help of commands: options in groups, common ones first; `--help-all` also explains the others.

A group is the `rich_help_panel` of an option. `-h` only names the options of groups that end in `ADVANCED`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from core.cli import terminal_width

ADVANCED = ", advanced"
ALL = "--help-all"
OUTPUT = "Output"  # group of the output options
OPTIONS = "Options"  # group of options without a group
_NAMES = 30  # characters of the name column

_Base: Any = typer.Context.formatter_class


class _Formatter(_Base):  # type: ignore[misc]
    """Wraps lines with `terminal_width`, never inside a name."""

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        indent = " " * self.current_indent
        paragraphs = [" ".join(one.split()) for one in text.split("\n\n")]
        folded = [
            terminal_width.fold(one, self.width - self.current_indent, hard=False) for one in paragraphs
        ]
        self.write("\n\n".join("\n".join(f"{indent}{line}" for line in lines) for lines in folded) + "\n")

    def write_dl(self, rows: Any, col_max: int = _NAMES, col_spacing: int = 2) -> None:
        """Write names with their descriptions."""
        rows, indent = list(rows), " " * self.current_indent
        wide = min(max(len(name) for name, _ in rows), col_max) + col_spacing
        for name, text in rows:
            names = terminal_width.fold(name, self.width - len(indent))
            lines = terminal_width.fold(text, self.width - len(indent) - wide, hard=False) if text else [""]
            if len(names) > 1 or len(name) > wide - col_spacing:
                names.append("")
            together = [f"{names[-1]:<{wide}}{lines[0]}", *(f"{'':<{wide}}{line}" for line in lines[1:])]
            self.write("".join(f"{indent}{line}".rstrip() + "\n" for line in [*names[:-1], *together]))


class HelpContext(typer.Context):
    """Formats help with `_Formatter`."""

    formatter_class = _Formatter


class Grouped(TyperCommand):
    """A command with grouped options in its help."""

    context_class = HelpContext

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the full help if requested, else parse the command line."""
        own = args[: args.index("--")] if "--" in args else args
        if ALL in own and self._named_only(ctx):
            ctx.meta[ALL] = True
            typer.echo(self.get_help(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options."""
        named = {} if ctx.meta.get(ALL) else self._named_only(ctx)
        for title, options in self._groups(ctx).items():
            if title not in named:
                with formatter.section(title):
                    formatter.write_dl([one.get_help_record(ctx) for one in options])
        if named:
            with formatter.section(f"More options, explained by {ALL}"):
                formatter.write_dl(
                    [(title.removesuffix(ADVANCED), _flags(of)) for title, of in named.items()]
                )

    def _groups(self, ctx: Any) -> dict[str, list[Any]]:
        """Return the parameters in the help, by group title."""
        found: dict[str, list[Any]] = {"Arguments": [], OPTIONS: []}
        for one in self.get_params(ctx):
            if not getattr(one, "hidden", False):
                alone = "Arguments" if one.param_type_name == "argument" else OPTIONS
                found.setdefault(getattr(one, "rich_help_panel", None) or alone, []).append(one)
        ordered = sorted(found, key=lambda title: (title.endswith(ADVANCED), title == OUTPUT))
        return {title: found[title] for title in ordered if found[title]}

    def _named_only(self, ctx: Any) -> dict[str, list[Any]]:
        return {title: of for title, of in self._groups(ctx).items() if title.endswith(ADVANCED)}


class Group(TyperGroup):
    """Subcommands, each listed with the first sentence of its help."""

    context_class = HelpContext

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with the same help layout as all others."""
        found: Any = super().get_command(ctx, cmd_name)
        if found is not None:
            found.context_class = HelpContext
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._short_help(ctx)))

    def _short_help(self, ctx: Any) -> Iterator[tuple[str, str]]:
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            yield name, " ".join((command.help or "").split("\n\n")[0].split())


def _flags(options: Sequence[Any]) -> str:
    return ", ".join(one.opts[0] for one in options)
