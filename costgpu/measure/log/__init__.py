"""Programs that are known by what they print."""
