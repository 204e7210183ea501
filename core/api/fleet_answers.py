"""Answers of fleet runs, for pages and commands."""

from core.run.fleet.answers import latest as latest
from core.run.fleet.answers import listed as listed
from core.run.fleet.answers import refs as refs
from core.run.fleet.answers import summary as summary
from core.run.fleet.answers import summary_of as summary_of
