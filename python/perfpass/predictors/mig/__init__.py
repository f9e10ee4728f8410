"""MIG: the profile that holds a workload, and time on a slice."""
