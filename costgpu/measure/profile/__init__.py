"""From the probe's record to a workload profile. Pure."""
