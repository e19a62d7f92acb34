"""Side by side on a real control plane: `python -m tests.bench.cluster --out build/bench-cluster.json`.

One module a figure, each says what it measures and by which clock. Rivals and we get the same load from the same
seed; what is pressed together, and by how much, stands in `night`. Nothing here asserts a time, and the product runs
as people start it.
"""
