"""What measures in a worker: the contestant of a race, and the passes that find out more. Imports nothing."""
