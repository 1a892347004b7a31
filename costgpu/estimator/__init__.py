"""From a workload profile to seconds, dollars and a verdict. Pure: values in, frozen values out."""
