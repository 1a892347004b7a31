"""Programs for maintainers of the shipped data; not part of the installed package."""
