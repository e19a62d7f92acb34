"""`rebalancer preflight`: what stands in the way, told before anything acts. Reads only.

Exit code 0: nothing that stops; 3: acting would not be safe; 4: the API server cannot be reached.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import typer

from rebalancer.cli import clusterdoors
from rebalancer.cli.exits import Code, say
from rebalancer.cli.options import Config, Json, settings
from rebalancer.cli.output import put, put_json

Profile = Literal["shadow", "act", "retire", "operator"]
PROFILES: tuple[Profile, ...] = get_args(Profile)


def preflight(
    *,
    profile: Annotated[
        str, typer.Option("--profile", metavar="|".join(PROFILES), help="Whose rights are asked for.")
    ] = "act",
    json: Json = False,
    config: Config = None,
) -> None:
    """Look at the cluster as whoever runs this may, and tell what would go wrong: rights, taints, pods, jobs."""
    wanted = next((one for one in PROFILES if one == profile), None)
    if wanted is None:
        raise typer.BadParameter(f"--profile is one of {', '.join(PROFILES)}")
    found = clusterdoors.preflight(settings(config), wanted)
    stops = sum(one.severity == "stops" for one in found)
    if json:
        put_json({"safe": stops == 0, "findings": found})
    else:
        for one in found:
            put(f"{one.severity.value:<6} {one.code.value}: {one.object}")
            put(f"       {one.sentence}")
            put(f"       next: {one.step}")
        say(f"{len(found)} findings, {stops} of them stop acting; topics are compared by `rebalancer topics plan`")
    raise typer.Exit(Code.UNSAFE if stops else Code.OK)
