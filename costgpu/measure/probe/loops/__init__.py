"""The loops of the script: which there are, how far they are, when they end."""
