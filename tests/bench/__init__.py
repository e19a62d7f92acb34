"""The figures of the design: `python -m tests.bench --out build/bench.json` measures all of them in one run.

One module a figure; each says what it measures and how. Costs are compared as ratios inside one run, absolute
figures stand beside the machine they were taken on. Nothing here asserts a time.
"""
