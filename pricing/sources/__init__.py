"""Where prices and hardware figures come from; run by maintainers, never while a user waits."""
