"""From what is asked to a stored result: plans, races, studies, and the queue that runs them."""
