"""The sums of the benchmark at a cluster: what lives of pods amount to, the load of a night, the table."""

import pytest

from tests.bench.cluster.__main__ import BENCHES, TINY, tables
from tests.bench.cluster.figures import RIVALS, quantile, spread
from tests.bench.cluster.night import Gang, Night
from tests.bench.cluster.rivals import VARIANTS
from tests.bench.cluster.score import Seen, measures
from tests.bench.cluster.spans import PodLife, Span, State, lost, progress, spans, splits, whole

END = 100.0


def member(
    bound: float, told: float | None = None, gone: float | None = None, *, node: str = "lent", app: str = "g"
) -> PodLife:
    """One that runs at once, and is gone when it is told to go unless said otherwise."""
    return PodLife("u", "ml", app, False, 8, bound, node, bound, bound, told, told if gone is None else gone)


def states(*pods: PodLife) -> list[tuple[str, float, float]]:
    return [(str(span.state), span.start, span.end) for span in spans(pods, 2, END)]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([member(0), member(0)], [("whole", 0, 100)], id="both work"),
        pytest.param([member(0), member(4)], [("broken", 0, 4), ("whole", 4, 100)], id="one waits for the other"),
        pytest.param([member(0), member(0, 10)], [("whole", 0, 10), ("broken", 10, 100)], id="one has to go"),
        pytest.param(
            [member(0, 10, 13), member(0, 10, 13)],
            [("whole", 0, 10), ("transit", 10, 13), ("away", 13, 100)],
            id="both have to go and drain",
        ),
        pytest.param(
            [member(0), member(0, 10), member(20)],
            [("whole", 0, 10), ("broken", 10, 20), ("whole", 20, 100)],
            id="one is replaced",
        ),
    ],
)
def test_a_gang_is_whole_broken_or_in_transit(pods: list[PodLife], expected: list[tuple[str, float, float]]) -> None:
    assert states(*pods) == expected


def test_gpu_seconds_are_those_of_all_that_hold_within_the_time_looked_at() -> None:
    (one, two) = spans([member(0), member(0, 10, 13)], 2, END)[:2]
    assert (one.within(5, 50), two.within(5, 50)) == (16 * 5, 16 * 3)


def test_work_falls_back_to_the_last_checkpoint_when_a_gang_breaks() -> None:
    found = spans([member(0), member(0, 19), member(30)], 2, 40)
    assert [span.seconds for span in whole(found)] == [19, 10]
    assert progress(found, 40, 7.5) == 15 + 10
    assert lost(found, 2, 40, 7.5) == 2 * 4


@pytest.mark.parametrize(("longer", "count"), [(10.0, 1), (25.0, 0)])
def test_a_gang_counts_as_split_only_if_it_stays_so(longer: float, count: int) -> None:
    assert splits(spans([member(0), member(0, 10), member(30)], 2, END), longer) == count


def test_a_gang_that_never_was_whole_is_no_split() -> None:
    assert splits([Span(State.BROKEN, 0, 50, 8)], 10.0) == 0


def test_the_measures_of_a_night() -> None:
    done, guarded = Gang("done", 0, 1, 5, False), Gang("held", 0, 1, 60, True)
    served = [PodLife("s", "serve", "chat", True, 8, at, "", at, ran) for at, ran in ((1, 2), (50, 54), (99, None))]
    lives = {"done": (done, (member(0, 5),)), "held": (guarded, (member(0, 40, 43), member(60)))}
    told = measures(Seen(tuple(served), lives, {"done": 5.0}, frozenset({"lent"}), 0.0, 90.0, END))
    assert (told["inference_waits"], told["inference_wait_p50_s"], told["inference_wait_max_s"]) == (2, 1, 4)
    assert (told["whole_gpu_s"], told["broken_gpu_s"], told["transit_gpu_s"]) == (8 * 75, 0, 8 * 3)
    assert (told["gangs_finished"], told["members_deleted"], told["below_budget"]) == (1, 1, 1)
    assert (told["gangs_split"], told["lost_gpu_s"], told["left_at_due"]) == (
        0,
        20,
        1,
    )  # 40 s are 5 checkpoints and 2.5
    assert set(RIVALS) <= set(told)


def test_the_night_begins_full_falls_rises_and_its_gangs_are_the_same_each_time() -> None:
    night = Night()
    assert [round(night.load(at)) for at in (0, 30, 65, 85, 122)] == [32, 8, 20, 8, 34]
    assert night.replicas(0.0) == 32
    assert night.gangs(50) == Night().gangs(50)
    assert all(night.load(at) <= night.nodes for at in range(150))


def test_quantiles_are_values_that_were_seen() -> None:
    assert (quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3], 0.99)) == (2, 3)
    assert spread([], 1000.0) == {"count": 0, "p50": None, "p99": None, "max": None}


def test_every_figure_has_a_table() -> None:
    stage = {"stages": {"a": spread([0.1])}, "trials": 1}
    run = {"measures": dict.fromkeys(RIVALS, 1.5)}
    told = {
        "first_eviction_p99_ms": 300.0,
        "first_eviction": {"triggers": {"pending": stage}},
        "startup": {"starts": [{"start": "first", "picture complete, s": 9.0}]},
        "rivals": {"variants": {name: {"runs": [run, run]} for name in VARIANTS}},
    }
    shown = tables(told)
    assert "300.0 ms (bar 250, MISSED)" in shown
    assert f"| one night | {' | '.join(VARIANTS)} |" in shown
    assert set(TINY) == set(BENCHES)
