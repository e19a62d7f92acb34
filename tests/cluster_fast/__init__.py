"""Fast tests of the cluster room over fakes in this process; the real control plane is tested in tests/cluster."""
