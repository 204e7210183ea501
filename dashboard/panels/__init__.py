"""What several pages show: results, curves, profiles, the export form, the machine's corner."""
