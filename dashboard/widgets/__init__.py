"""Widgets shared by several pages: settings, inputs, data, results, verdicts, jobs."""
