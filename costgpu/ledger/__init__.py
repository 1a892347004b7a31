"""The append-only record of runs. May import `config`, `job`, `models`, `clock`, `units` and `errors`."""
