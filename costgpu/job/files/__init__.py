"""Files that travel: the working folder to the machine, outputs back."""
