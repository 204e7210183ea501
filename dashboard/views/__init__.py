"""One file per page: title, controls, one call, results."""
