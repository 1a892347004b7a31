"""The whole client side against a simulated world, in one process, from one seed, in simulated time.

    python -m benchmarks.simulation --seeds 1000            # many seeds, and the figures
    python -m benchmarks.simulation --seeds 1 --first 4711  # one seed again, with its log if it fails

`schedule` draws what happens (a setting, and a list of timed steps) from the seed; `simulation` carries it out; `invariants`
says what must hold after every call; `shrinking` removes steps as long as a schedule still fails; `planted` has bugs
that must be found. Real: the engine, attach, cancel, fetch, reap, queue and budget checks, the files' way home, and for a
share of the seeds the ledger on SQLite. Simulated: cloud, machines, agents, network (`tests.fake_cloud`), clocks, faults of
disks, and the processes, which take turns at every call and die there.
"""
