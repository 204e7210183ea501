"""Worker processes: every module that opens a model.

It imports `core.wire` and nothing else of `core`. The parent never imports it.
"""
