"""Load tests: traffic against a configuration."""
