"""Profile: where one inference spends its time."""
