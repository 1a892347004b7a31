"""Finds what a script only runs forward, without being asked, and follows it in units."""
