"""The parent's side of child processes: start, command, stop and end them; the queue of the machine."""
