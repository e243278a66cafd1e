"""One run on several ranks: two real processes against one process on the same rows, and against mistakes."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import ranks_worker as worker
import torch
import torch.distributed as dist
from torch import Tensor

import ocssl
from conftest import METHODS, SMALL_STREAM, random_images, small_settings
from ocssl._core import checkpoint
from ocssl._core.registry import Registry
from ocssl._distributed.ranks import ALONE, DistributedRanks, Rows
from ocssl.errors import CheckpointError, SettingError
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.runs.folder import EVENTS, METRICS, complete_checkpoints
from ocssl.runs.snapshots import load_snapshot, select_states
from ocssl.terms import TERMS

pytestmark = pytest.mark.process

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["ranks_worker"])
HANGS = 240  # seconds after which processes that wait for one another are given up
ABLE = {"solar", "solar-c", "er-fifo", "er-reservoir", "lars", "finetune", "pretrain"}


class Unconnected(DistributedRanks):
    """A rank that has no others, for what ranks know by themselves."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def ranks_of(size: int) -> list[Unconnected]:
    return [Unconnected(rank, size) for rank in range(size)]


class Group:
    """Ranks as torchrun starts them, but out of a process that has imported everything before."""

    def __init__(self, size: int, log: Path, *words: str) -> None:
        self.log = log
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # as torchrun's agent
        with pytest.MonkeyPatch.context() as patch:  # the server imports by the paths of its environment
            patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
            forkserver.ensure_running()
        told = (size, self._store.port, log, words)
        self.processes = [CONTEXT.Process(target=worker.as_rank, args=(rank, *told)) for rank in range(size)]
        for process in self.processes:
            process.start()

    def until_saved(self, folder: Path) -> None:
        """Wait for the first checkpoint of a run."""
        limit = time.monotonic() + HANGS
        while not complete_checkpoints(folder) and time.monotonic() < limit and self.processes[0].is_alive():
            time.sleep(0.01)

    def signal(self, rank: int, number: int) -> None:
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def end(self) -> tuple[list[int | None], str]:
        """Exit codes, and what all said."""
        limit = time.monotonic() + HANGS
        for process in self.processes:
            process.join(max(0.0, limit - time.monotonic()))
            process.kill()
            process.join()
        return [process.exitcode for process in self.processes], self.log.read_text()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    """What two ranks of tests/_distributed/ranks_worker.py made of everything."""
    folder = tmp_path_factory.mktemp("two")
    codes, said = Group(2, folder / "log", "worker", str(folder)).end()
    assert codes == [0, 0], said
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)], folder


@pytest.fixture(scope="module")
def one() -> dict[str, dict[str, Tensor]]:
    """What one process made of the same rows."""
    return {case: worker.trained(case, ALONE) for case in worker.STEPS}


def differences(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest difference of any two numbers, in units of 1e-5 + 1e-4 of the number."""
    assert found.keys() == wanted.keys()
    largest = 0.0
    for name, tensor in wanted.items():
        assert found[name].shape == tensor.shape, name
        if tensor.numel():
            distance = (found[name].double() - tensor.double()).abs() / (1e-5 + 1e-4 * tensor.double().abs())
            largest = max(largest, float(distance.max()))
    return largest


# ---- what ranks know by themselves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_arrival_is_of_one_rank_and_shares_say_how_many(size: int) -> None:
    for seen in range(7):
        for n in range(12):
            rows = [list(range(n))[rank.mine(seen)] for rank in ranks_of(size)]
            assert sorted(row for part in rows for row in part) == list(range(n))
            shares = [rank.share(seen + n) - rank.share(seen) for rank in ranks_of(size)]
            assert [len(part) for part in rows] == shares


def test_parts_of_means_add_up_to_the_mean_of_all_rows() -> None:
    rows = torch.tensor([1.0, 2.0, 6.0, 7.0, 11.0])
    parts = [Rows(len(part), 5).part(part.mean()) for part in rows.split([3, 0, 2])]
    assert float(sum(parts)) == pytest.approx(float(rows.mean()))
    loss = rows.mean()
    assert Rows(5, 5).part(loss) is loss
    assert ALONE.sum(loss) is loss
    assert ALONE.gather(rows) is rows


def test_a_rank_without_rows_still_has_a_graph_to_go_back_through() -> None:
    rows = torch.zeros(0, 2, requires_grad=True)
    part = Rows(0, 4).part((rows * 2).mean())
    part.backward()
    assert part == 0
    assert rows.grad is not None


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_cannot_be_sharded_are_refused_in_one_sentence(method: str) -> None:
    settings = small_settings(method, compute__ranks=2)

    def make() -> ocssl.Learner:
        return ocssl.Learner(method, image_size=8, settings=settings, ranks=Unconnected(0, 2))

    if method in ABLE:
        assert make().memory.store.capacity == settings.get("memory.capacity", 0) // 2
    else:
        with pytest.raises(SettingError, match=r"2 ranks[^.]*(\.\w[^.]*)*\.$"):
            make()


@pytest.mark.parametrize(
    ("key", "value"), [("compute.compile", True), ("schedule.mix", 0.5), ("objective.name", "simclr")]
)
def test_settings_that_cannot_be_sharded_are_refused(key: str, value: Any) -> None:
    settings = small_settings("er-fifo", compute__ranks=2) | {key: value}
    with pytest.raises(SettingError, match="2 ranks"):
        ocssl.Learner("er-fifo", image_size=8, settings=settings, ranks=Unconnected(1, 2))


def test_parts_that_are_right_shard_by_shard_say_so_and_are_named_where_another_is_refused() -> None:
    wanted: dict[Registry[Any], set[str]] = {
        KEEPS: {"fifo", "reservoir", "highest-loss", "lowest-loss", "lars"},
        DRAWS: {"uniform", "least-drawn", "high-loss"},
        OBJECTIVES: {"simsiam", "byol", "dino"},
        TERMS: {"overlap"},
    }
    for registry, names in wanted.items():
        assert {name for name in registry if registry[name].shardable} == names
    settings = small_settings("er-fifo", compute__ranks=2, objective__name="simclr")
    with pytest.raises(SettingError, match="where objective can be byol or dino or simsiam"):
        ocssl.Learner("er-fifo", image_size=8, settings=settings, ranks=Unconnected(0, 2))


def test_the_number_of_ranks_must_be_that_of_the_settings() -> None:
    with pytest.raises(SettingError, match=r"compute.ranks is of 2 ranks, and here is 1; start it with: torchrun"):
        ocssl.Learner(image_size=8, settings=small_settings("solar", compute__ranks=2))
    with pytest.raises(SettingError, match="of 1 rank, and here are 3; start it as one process"):
        ocssl.Learner(image_size=8, settings=small_settings("solar"), ranks=Unconnected(0, 3))


# ---- two processes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["1d", "2d", "plain"])
@pytest.mark.parametrize("shares", worker.SHARES)
def test_synchronised_norm_is_batch_norm_of_the_joint_rows(two: Any, kind: str, shares: tuple[int, int]) -> None:
    wanted = worker.normed(worker.a_norm(kind), *worker.a_batch(kind, sum(shares)))
    found = [{n: rank["norms"][f"{kind} {shares} {n}"] for n in wanted} for rank in two[0]]
    for name, tensor in wanted.items():
        first, second = (rank[name] for rank in found)
        if name in ("out", "by x"):
            together = torch.cat([first, second])
        elif name.startswith("by "):  # of weights, which are summed later
            together = first + second
        else:
            assert torch.equal(first, second)
            together = first
        torch.testing.assert_close(together, tensor, rtol=1e-9, atol=1e-9, msg=f"{name} {shares}")


def test_the_highest_of_all_shards_are_those_of_one_list(two: Any) -> None:
    short = 0
    for seed, k in worker.CASES:
        losses, features, outside = worker.shard_rows(seed)
        left_out = {2 * int(slot) + rank for rank in range(2) for slot in outside[rank]}
        order = sorted((-float(losses[t]), t) for t in range(15) if t not in left_out)
        best = torch.tensor([t for _, t in order[:k]], dtype=torch.int64)
        short += len(best) < k
        for rank in two[0]:
            found = rank["tops"]
            assert torch.equal(found[f"{seed} {k} loss"], losses[best])
            assert torch.equal(found[f"{seed} {k} feature"], features[best])
            assert torch.equal(found[f"{seed} {k} angle"], losses[best] * 2)
    assert short  # and more than there are was asked for, too


@pytest.mark.parametrize("case", list(worker.STEPS))
def test_two_ranks_learn_what_one_process_learns_from_the_same_rows(two: Any, one: Any, case: str) -> None:
    found = two[0][0][case]
    assert differences(found, one[case]) < 0.1
    assert torch.equal(found["memory.column.id"], one[case]["memory.column.id"])
    assert float(one[case]["info"][-1][-1]) > 0 or case != "solar"  # some pairs do overlap


@pytest.mark.parametrize("how", worker.BROKEN)
def test_a_mistake_would_be_noticed(two: Any, one: Any, how: str) -> None:
    assert differences(two[0][0][f"without {how}"], one["solar"]) > 10


def test_weights_are_the_same_to_the_bit_on_both_ranks(two: Any) -> None:
    for case in (*worker.STEPS, "few"):
        first, second = ({n: t for n, t in rank[case].items() if n.startswith(("network", "mom"))} for rank in two[0])
        assert len(first) > 10
        assert worker.digest(first) == worker.digest(second)


def test_ranks_see_different_images_and_draw_their_own_numbers(two: Any) -> None:
    first, second = (rank["few"] for rank in two[0])
    assert first["memory.column.id"].tolist() == [0, 2]
    assert second["memory.column.id"].tolist() == [1]
    assert not torch.equal(first["generator.views"], second["generator.views"])
    assert torch.isfinite(first["told"]).all()


def test_a_loss_that_is_not_finite_on_one_rank_is_refused_on_all_with_its_id(two: Any) -> None:
    for rank in two[0]:
        assert rank["refused"]["ids"].tolist() == [103]
        assert not rank["refused"]["changed"]


def test_a_learner_that_was_saved_goes_on_to_the_bit(two: Any) -> None:
    for rank in two[0]:
        parts = [
            {n.partition(" ")[2]: t for n, t in rank["resumed"].items() if n.startswith(s)} for s in ("one", "other")
        ]
        assert worker.digest(parts[0]) == worker.digest(parts[1])


def test_one_process_may_look_at_what_two_ranks_saved_but_not_go_on(two: Any) -> None:
    folder = two[1] / "learner"
    with pytest.raises(CheckpointError, match=r"this learner is of 2 ranks, and here is 1; .* torchrun "):
        ocssl.Learner.load(folder, encoder=worker.an_encoder())
    tensors, facts = checkpoint.read(folder)
    assert facts["settings"]["compute"]["ranks"] == 2
    assert facts["seen"] == int(tensors["memory.seen"]) == 15
    born = tensors["memory.column.born"]  # shard by shard: five slots of the first rank, four of the second
    assert (born % 2).tolist() == [0] * 5 + [1] * 4
    assert len(born.unique()) == 9
    assert born.max() < 15


# ---- whole runs -----------------------------------------------------------------------------------------------------

RUN = {**SMALL_STREAM, "evaluate.start": False, "checkpoint.every": 2}


def words(folder: Path) -> list[str]:
    settings = small_settings("solar") | RUN | {"schedule.passes": 1, "memory.capacity": 13, "schedule.batch": 15}
    told = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return ["run", "solar", "synthetic", "--out", str(folder), *told]


def outcome(folder: Path) -> tuple[str, dict[str, Any]]:
    """The last checkpoint's tensors, and the metrics but for the time."""
    tensors, _ = checkpoint.read(max(complete_checkpoints(folder)))
    metrics = json.loads((folder / METRICS).read_bytes())
    return worker.digest(tensors), {key: value for key, value in metrics.items() if key != "seconds"}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by torchrun itself, from its beginning to its end."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ocssl"]
    done = subprocess.run([*launch, *words(folder)], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("after experience 2") == 1, done.stdout  # one rank speaks
    assert done.stdout.count("final accuracy") == 1, done.stdout
    return folder


def test_a_run_on_two_ranks_comes_to_its_end(whole_run: Path) -> None:
    _, metrics = outcome(whole_run)
    assert len(metrics["accuracies"]) == 2
    assert all(0 <= accuracy <= 100 for accuracy in metrics["accuracies"])
    assert metrics["seen"] == 10 * metrics["steps"]
    seen = load_snapshot(*select_states(whole_run, "last").values())
    assert len(seen.memory["id"]) == 13
    assert seen.learner.transform(random_images(2)).shape == (2, 16)
    snapshots = complete_checkpoints(whole_run, "snapshots")
    tensors, _ = checkpoint.read(max(snapshots))
    assert torch.equal(tensors["memory.column.id"], seen.memory["id"])  # all shards in a snapshot, too


def test_a_run_that_was_killed_goes_on_to_the_same_bits(whole_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    group = Group(2, tmp_path / "log", *words(folder))
    group.until_saved(folder)
    for rank in range(2):
        group.signal(rank, signal.SIGKILL)
    codes, said = group.end()
    assert codes == [-signal.SIGKILL] * 2, said
    assert not (folder / METRICS).exists()

    refusal = r"ocssl: the run \S+ is of 2 ranks, and here (is 1|are 3); start it with: torchrun [^\n]*\n"
    for size in (1, 3):
        codes, said = Group(size, tmp_path / f"log{size}", "resume", str(folder)).end()
        assert codes == [2] * size, said
        assert re.fullmatch(refusal, said), said

    codes, said = Group(2, tmp_path / "log2", "resume", str(folder), "--quiet").end()
    assert codes == [0, 0], said
    assert outcome(folder) == outcome(whole_run)


def test_no_rank_goes_on_before_all_are_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends at once, as where the number of ranks is refused, left others connecting to it for ever."""
    connected = threading.Event()

    def connect(backend: str, *, rank: int, **options: Any) -> None:
        if rank == 1:
            assert connected.wait(HANGS)

    monkeypatch.setattr(dist, "init_process_group", connect)
    store = dist.HashStore()
    with ThreadPoolExecutor() as threads:
        ranks = [threads.submit(DistributedRanks, store, rank, 2, "gloo") for rank in range(2)]
        while not ranks[0].done() and not store.check(["ocssl/connected/0"]):
            time.sleep(0.01)
        alone = ranks[0].done()
        connected.set()
        assert not alone
        assert [one.result(timeout=HANGS).rank for one in ranks] == [0, 1]


def test_a_stop_of_one_rank_stops_all_and_saves(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    group = Group(2, tmp_path / "log", *words(folder))
    group.until_saved(folder)
    group.signal(1, signal.SIGTERM)
    codes, said = group.end()
    assert codes == [128 + signal.SIGTERM] * 2, said
    assert said.count(f"continue with: torchrun --nproc-per-node 2 -m ocssl resume {folder}") == 1
    last = max(complete_checkpoints(folder))
    events = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    assert int(last.name) == max(event["position"] for event in events if event["event"] == "step")


def test_when_one_rank_is_lost_the_others_end_with_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "lost"
    group = Group(2, tmp_path / "log", *words(folder))
    group.until_saved(folder)
    group.signal(1, signal.SIGKILL)
    codes, said = group.end()
    assert codes == [2, -signal.SIGKILL], said
    assert said.count("ocssl: another rank has ended") == 1, said
    assert "Traceback" not in said
