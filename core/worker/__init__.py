"""What runs in child processes: everything that opens a model.

Imports `core.wire` and nothing else of `core`; the parent never imports it.
"""
