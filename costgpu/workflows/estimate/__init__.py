"""Answers to "where should this run?": measure or look up, predict, decide."""
