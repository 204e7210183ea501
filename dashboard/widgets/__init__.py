"""What several pages draw: settings, feeds, data, results, verdicts, jobs."""
