"""What this machine is and which providers load on it."""
