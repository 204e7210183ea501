"""Load tests: schedules in fresh processes, and what is found with them."""
