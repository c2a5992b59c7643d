"""One run: the loop, and all that happens around it."""
