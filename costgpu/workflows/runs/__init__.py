"""What commands do with runs: plan, start, find, list, fetch, cancel, reap."""
