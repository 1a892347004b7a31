"""What keeps the script from changing files, and what stands in for a GPU."""
