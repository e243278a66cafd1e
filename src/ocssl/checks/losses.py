"""Contracts of objectives and terms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ocssl._core.random import single_sample
from ocssl.checks.contract import global_randomness_untouched, maker, require, seeded
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.objectives import OBJECTIVES, Objective, Output
from ocssl.objectives.sample_statistics import MeasureSamples
from ocssl.settings import MemorySettings
from ocssl.terms import TERMS, Penalty, Step, Term

FEATURES, PROJECTION = 8, 12


def _objective(part: Any) -> Objective:
    """An objective around a tiny encoder."""
    with seeded():
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, FEATURES, bias=False), nn.ReLU())
        objective = maker(part, OBJECTIVES, encoder, FEATURES, PROJECTION)()
    objective.begin()
    return objective


def check_objective(part: Any) -> None:
    """A finite loss a sample that follows the samples' order, gradients into the encoder, an exact state round trip."""
    generator = torch.Generator().manual_seed(9)
    for batch in (2, 5, 16):
        objective = _objective(part)
        v = objective.views
        views = torch.randn(v, batch, 3, 4, 4, generator=generator)
        kept = views.clone()
        with global_randomness_untouched("the objective"):
            out = objective(views)
        require(isinstance(out, Output), f"forward must return Output, not {type(out).__name__}")
        require(out.loss.shape == (batch,), f"loss must be [{batch}], one per sample, not {list(out.loss.shape)}")
        shape = list(out.features.shape)
        require(shape == [v, batch, FEATURES], f"features must be [{v}, {batch}, {FEATURES}], not {shape}")
        require(out.projected.shape[:2] == (v, batch), f"projected must be [{v}, {batch}, P]")
        require(out.projected.shape[2:] == (objective.projection,), "projected must be as wide as `projection` says")
        require(out.loss.isfinite().all(), "the loss is not finite")
        require(torch.equal(views, kept), "the objective changes its input")
        _check_gradients(objective, out)
    order = torch.randperm(16, generator=generator)
    straight, permuted = _objective(part)(views).loss, _objective(part)(views[:, order]).loss
    same = torch.allclose(straight[order], permuted, atol=1e-5)
    require(same, "the loss of a sample depends on its place in the batch: values are not one per sample")
    blank = _objective(part)
    _check_gradients(blank, blank(torch.zeros(v, 4, 3, 4, 4)), reach=False)
    with single_sample(blank):
        _check_gradients(blank, blank(torch.randn(v, 1, 3, 4, 4, generator=generator)), reach=False)
    first, second = _objective(part), _objective(part)  # a copy made of the state alone continues in the same way
    for _ in range(3):
        first(views)
        _advance(first)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        require(torch.equal(first(views).loss, second(views).loss), "state_dict does not hold the whole state")
        first.after_step()
        second.after_step()


def _check_gradients(objective: Objective, out: Output, reach: bool = True) -> None:
    total = out.total(torch.ones_like(out.loss))
    require(total.ndim == 0 and total.isfinite(), "what is trained must be one finite number")
    if objective.per_sample == "none":
        return
    total.backward()
    require(_has_gradient(objective.encoder) or not reach, "no gradient reaches the encoder")
    for name, parameter in objective.named_parameters():
        require(parameter.grad is None or parameter.grad.isfinite().all(), f"the gradient of {name} is not finite")


def _has_gradient(network: nn.Module) -> bool:
    return any(p.grad is not None and bool(p.grad.any()) for p in network.parameters())


def check_term(part: Any, objective: str = "simsiam") -> None:
    """A finite loss whose gradient reaches what is trained, nothing else changed, an exact state round trip."""
    generator = torch.Generator().manual_seed(11)

    def make() -> tuple[Objective, Term]:
        network = _objective(objective)
        with seeded():
            term = maker(part, TERMS, network)()
        term.begin(network)
        return network, term

    met, shown = False, set()
    for stored, fresh, replayed in ((0, 3, 0), (20, 3, 5), (20, 0, 6), (4, 4, 4), (20, 4, 1), (20, 1, 0), (20, 0, 1)):
        network, term = make()
        require(term.weight > 0, "the default weight turns the term off")
        memory = _filled(stored, term.needs, generator)
        for number in range(4):
            step = _step(network, memory, number % 2, (fresh, replayed), generator, scale=int(number < 3))
            penalty = _penalty(term, step)
            met |= _reaches(penalty, network, term)
            shown.add(frozenset(penalty.signals))
            _advance(network, term)
            if term.boundaries:
                term.boundary(network)
    require(met, "no gradient reaches the encoder")
    require(len(shown) == 1, "the signals of one step have other names than those of another")
    _check_term_state(make, generator)


def _penalty(term: Term, step: Step) -> Penalty:
    store, weights = step.memory.store, {**step.objective.state_dict()}
    before = {name: tensor.clone() for name, tensor in [*((n, store[n]) for n in store), *weights.items()]}
    with global_randomness_untouched("the term"), single_sample(term, alone=step.views.shape[1] == 1):
        try:
            penalty: Penalty = term(step)
        except KeyError as error:
            require(False, f"the term reads column {error} of the memory, which it does not name in `needs`")
    require(isinstance(penalty, Penalty), f"forward must return Penalty, not {type(penalty).__name__}")
    require(penalty.loss.ndim == 0, f"the loss must be one number, not {list(penalty.loss.shape)}")
    require(penalty.loss.isfinite(), "the loss is not finite")
    detached = not any(signal.requires_grad for signal in penalty.signals.values())
    require(detached, "a signal carries the graph of the step along: detach it")
    require(all(torch.equal(store[n], before[n]) for n in store), "the term writes to the memory")
    require(all(torch.equal(w, before[n]) for n, w in weights.items()), "the term changes the objective")
    return penalty


def _reaches(penalty: Penalty, network: Objective, term: Term) -> bool:
    if not penalty.loss.requires_grad:
        return False
    weights = [*network.parameters(), *term.parameters()]
    for parameter in weights:
        parameter.grad = None
    penalty.loss.backward()
    require(all(p.grad is None or bool(p.grad.isfinite().all()) for p in weights), "a gradient is not finite")
    return _has_gradient(term.evaluated() or network.encoder)


def _advance(network: Objective, *terms: Term) -> None:
    """Change all that is trained, as an optimizer step would, and call `after_step`."""
    with torch.no_grad():
        for parameter in {p for module in (network, *terms) for p in module.parameters() if p.requires_grad}:
            parameter.mul_(0.9)
    network.after_step()
    for term in terms:
        term.after_step(network)


def _check_term_state(make: Callable[[], tuple[Objective, Term]], generator: torch.Generator) -> None:
    """Some steps and a boundary, then a copy made of the state alone continues in the same way."""
    (network, first), (_, second) = make(), make()
    memory = _filled(20, first.needs, generator)
    for number in range(3):
        first(_step(network, memory, number % 2, (3, 5), generator))
        _advance(network, first)
        if first.boundaries and number == 1:
            first.boundary(network)
    second.load_state_dict(first.state_dict())
    for number in (1, 0, 1):
        step = _step(network, memory, number, (3, 5), generator)
        require(torch.equal(first(step).loss, second(step).loss), "state_dict does not hold the whole state")
        _advance(network, first, second)


def _filled(stored: int, needs: frozenset[str], generator: torch.Generator) -> Memory:
    """A memory with those vectors that a term says it reads."""
    vectors = {name: n for name, n in (("feature", FEATURES), ("projected", PROJECTION)) if name in needs}
    store = Store(24, (3, 4, 4), vectors)
    memory = Memory(store, KEEPS.build("fifo"), DRAWS.build("uniform"), torch.Generator().manual_seed(5))
    rows = {name: torch.randn(stored, length, generator=generator) for name, length in vectors.items()}
    rows["loss"] = torch.randn(stored, generator=generator)
    rows["angle"] = torch.rand(stored, generator=generator)
    images = torch.randint(0, 256, (stored, 3, 4, 4), generator=generator, dtype=torch.uint8)
    memory.insert(images, torch.arange(stored), rows)
    return memory


def _step(
    network: Objective, memory: Memory, number: int, rows: tuple[int, int], generator: torch.Generator, scale: int = 1
) -> Step:
    """One step of these stream and replayed rows."""
    fresh, replayed = rows
    replay = memory.draw(replayed)
    views = scale * torch.randn(network.views, fresh + replayed, 3, 4, 4, generator=generator)
    with single_sample(network, alone=views.shape[1] == 1):
        out = network(views)
    measure = MeasureSamples(MemorySettings(), network.dimension, network.projection)
    return Step(number, fresh, views, replay, out, measure(out), network, memory)
