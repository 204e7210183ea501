"""Export: a result as YAML or Python."""
