"""The entry of the command line: `rebalancer` and `python -m rebalancer`. Only starts it."""

import logging

from rebalancer.cli.app import app


def main() -> None:
    """Run the command that the arguments name; ends the process with its exit code."""
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # `run` sets up logs; others say it themselves
    app(prog_name="rebalancer")


if __name__ == "__main__":
    main()
