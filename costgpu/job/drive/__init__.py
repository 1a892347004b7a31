"""One run from its state to its end: the loop, and the steps that it takes."""
