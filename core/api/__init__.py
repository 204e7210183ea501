"""The Python API: what the dashboard, the command line, scripts and notebooks call to start work.

`NAME_job` checks a request and returns its job, for a queue that a page watches. `NAME` runs it in a session,
waits and returns a `Result`. Everything below (`run`, `process`) is called from here alone; results are read
from `store` and shown by `show`. Types, constants and readers of `run` that pages and commands name are
imported from the module here that uses them; `from core.run.x import y as y` only passes one on. This module
imports nothing, so that a command loads only what it needs; the package `ortune` offers all functions.
"""
