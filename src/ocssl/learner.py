"""The online learner: Algorithm 1 of the SOLAR paper, over parts that recipes choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ocssl import recipes
from ocssl._core import checkpoint
from ocssl._core.devices import send
from ocssl._core.inputs import as_ids, as_images
from ocssl._core.nonfinite import Guard
from ocssl._core.random import evaluating, generator_for, single_sample
from ocssl._distributed.ranks import ALONE, Ranks, other_ranks
from ocssl._training.assembly import build_memory, build_objective, build_terms, compile_encoder, usable_device
from ocssl._training.batch import Join
from ocssl._training.info import Info, tell
from ocssl._training.optimizer import Descent
from ocssl._training.rule_context import LearnerContext
from ocssl.errors import CheckpointError, NonFiniteLoss, SettingError
from ocssl.objectives import Output
from ocssl.objectives.statistics import Measure, Measured
from ocssl.settings import LearnerSettings, validate, whole
from ocssl.terms import Step
from ocssl.views import Views

BLOCK = 256  # images that `transform` encodes at a time
GENERATORS = ("generator.views", "generator.join", "memory.generator")  # every rank has its own


class Learner:
    """Trains an encoder on a stream of images seen once.

    >>> import numpy as np
    >>> learner = Learner("solar", image_size=16, settings={"encoder.width": 4, "schedule.passes": 1})
    >>> learner.partial_fit(np.zeros((10, 3, 16, 16), np.uint8)).seen
    10
    >>> learner.transform(np.zeros((2, 16, 16, 3), np.uint8)).shape
    (2, 32)
    """

    def __init__(
        self,
        method: str = "solar",
        *,
        image_size: int,
        seed: int = 0,
        settings: Mapping[str, Any] | LearnerSettings | None = None,
        encoder: nn.Module | None = None,
        device: str | torch.device = "cpu",
        ranks: Ranks = ALONE,
    ) -> None:
        if not isinstance(settings, LearnerSettings):
            settings = validate(LearnerSettings, recipes.resolve(method, None, {} if settings is None else settings))
        image_size, seed = whole("image_size", image_size, 4, 1024), whole("seed", seed, 0, 2**63 - 1)
        self.method, self.image_size, self.seed, self.settings = method, image_size, seed, settings
        self.device = usable_device(device)
        self.ranks = ranks  # the processes that train this learner together
        self.steps = 0
        self.seen = 0
        self.own_encoder = encoder is not None
        self.views = Views(settings.views, image_size)
        self._view_generator = generator_for(seed, ranks.named("views"))
        self.join = Join(settings.schedule, generator_for(seed, ranks.named("join")))
        self.objective = build_objective(settings, image_size, encoder, generator_for(seed, "weights"))
        self.terms = build_terms(settings, self.objective, seed)
        ranks.require(settings, self.terms)
        self.measure = Measure(settings.memory, self.objective.dimension, self.objective.projection, ranks)
        parts = {"objective": self.objective, "terms": nn.ModuleDict(self.terms), "measure": self.measure}
        self.network = nn.ModuleDict(parts).train()
        ranks.synchronise(self.network)
        self.network.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        generator = generator_for(seed, ranks.named("memory"))
        self.memory = build_memory(settings, image_size, self.objective, self.terms, generator, self.device, ranks)
        self._guard = Guard(self.device)
        trained = {name: p for name, p in self.network.named_parameters() if p.requires_grad}
        self._optimizer = Descent(trained, settings.optimizer, self._guard)
        if settings.compute.compile:
            compile_encoder(self.objective, self.device)

    # ---- Algorithm 1 ------------------------------------------------------------------------------------------------

    def partial_fit(self, images: Any, ids: Any = None) -> Info:
        """Learn from one stream minibatch, uint8 [b, 3, H, W] or [b, H, W, 3]; more than `schedule.batch` is cut up.

        Of several ranks each is given the whole minibatch, and takes its rows.
        After a NonFiniteLoss the weights are those before the refused step; load the last save to go on.
        """
        images = as_images(images, self.image_size)
        ids = as_ids(ids, len(images), self.seen)
        size = self.settings.schedule.batch
        history: list[dict[str, Tensor]] = []
        for stream, stream_ids in zip(images.split(size), ids.split(size), strict=True):
            mine = self.ranks.mine(self.seen)
            out = self._fit_minibatch(send(stream[mine], self.device), send(stream_ids[mine], self.device), history)
            self._guard.settle()
        return tell(history, out.features[0], self.steps, self.seen, self.ranks)

    def _fit_minibatch(self, stream: Tensor, stream_ids: Tensor, history: list[dict[str, Tensor]]) -> Output:
        schedule, memory = self.settings.schedule, self.memory
        context = self._context(stream)
        if schedule.admit == "before":
            memory.insert(stream, stream_ids, self._glance(stream), context)
        for p in range(schedule.passes):
            streaming = self._has_stream(p)
            fresh = len(stream) if streaming else 0
            replay = memory.draw(self._wanted(fresh), context)
            batch = torch.cat([stream[:fresh], replay.images])  # stream rows first
            views, replay = self.join(self._see(batch), fresh, replay)
            rows = self.ranks.count(views.shape[1])
            with single_sample(self.network, alone=rows.total == 1):
                out: Output = self.objective(views)
                step = Step(p, fresh, views, replay, out, self.measure(out), self.objective, memory)
                loss = out.total(torch.cat([replay.weight.new_ones(fresh), replay.weight]))
                signals = {"ssl": loss.detach()}
                loss = self.settings.objective.weight * loss
                for name, term in self.terms.items():
                    penalty = term(step)
                    loss = loss + term.weight * penalty.loss
                    signals[name] = penalty.loss.detach()
                    signals |= {f"{name}.{key}": value for key, value in penalty.signals.items()}
            self._step(rows.part(loss), out.loss, torch.cat([stream_ids[:fresh], replay.ids]))
            history.append({name: rows.part(value) for name, value in {"loss": loss.detach(), **signals}.items()})
            memory.refresh(replay, step.measured.rows(slice(fresh, None)))
            if streaming:
                arrived = step.measured.rows(slice(0, fresh))
            if (p == 0 and schedule.admit == "first") or (p == schedule.passes - 1 and schedule.admit == "last"):
                memory.insert(stream, stream_ids, arrived, context)
        self.seen += self.ranks.total(len(stream))
        return out

    # -----------------------------------------------------------------------------------------------------------------

    def _has_stream(self, p: int) -> bool:
        """Whether pass p contains the stream samples; an empty memory leaves nothing else."""
        wanted = self.settings.schedule.stream_in
        return wanted == "all" or (wanted == "first" and p == 0) or not self.ranks.total(len(self.memory))

    def _wanted(self, fresh: int) -> int:
        """How many samples to draw beside so many stream rows: this rank's share of what the ranks draw together."""
        ranks = self.ranks
        return ranks.share(self.join.wanted(ranks.total(fresh), ranks.total(len(self.memory))))

    def _see(self, images: Tensor) -> Tensor:
        return self.views(images, self._view_generator, self.objective.views)

    @torch.no_grad()
    def _glance(self, images: Tensor) -> dict[str, Tensor]:
        """Statistics of images before any training on them: as they are, in eval mode, nothing remembered."""
        plain = self.views.plain(images)
        with evaluating(self.network):
            out = self.objective(plain.expand(self.objective.views, *plain.shape))
            measured: Measured = self.measure(out)
        return measured.rows(slice(None))

    def _context(self, stream: Tensor) -> LearnerContext:
        return LearnerContext(self.objective, self.views, self._view_generator, stream, self.lr)

    def _step(self, loss: Tensor, losses: Tensor, ids: Tensor) -> None:
        """One SGD step on the sum of all ranks' losses, or none if it is not finite."""
        ranks = self.ranks
        self._guard.watch(ranks.sum(loss.detach()), ranks.gather(losses.detach()), ranks.gather(ids), self.steps)
        self._optimizer.zero_grad()
        loss.backward()
        ranks.add_gradients(self._optimizer.parameters.values())
        self._optimizer.step()
        self.steps += 1
        self.objective.after_step()
        for term in self.terms.values():
            term.after_step(self.objective)

    @property
    def lr(self) -> float:
        """The learning rate of the next step. It stays at `optimizer.lr` unless it is set."""
        return self._optimizer.lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self._optimizer.lr = float(rate)

    def boundary(self) -> None:
        """Say that an experience has ended. Only recipes with `schedule.boundaries` may know; others refuse."""
        if not self.settings.schedule.boundaries:
            raise SettingError(
                f"method {self.method!r} is not to know where an experience ends; offline recipes set "
                "schedule.boundaries=true."
            )
        for term in self.terms.values():
            term.boundary(self.objective)

    @property
    def encoder(self) -> nn.Module:
        """The network that is evaluated and kept."""
        own = [term.evaluated() for term in self.terms.values()]
        return next((encoder for encoder in own if encoder is not None), self.objective.encoder)

    @torch.no_grad()
    def transform(self, images: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Features of images, float32 [n, d]: the encoder in eval mode. The learner stays as it is."""
        images = as_images(images, self.image_size)
        encoder = self.encoder
        with evaluating(encoder):
            blocks = [encoder(self.views.plain(block.to(self.device))).float().cpu() for block in images.split(BLOCK)]
        features: np.ndarray[Any, np.dtype[np.float32]] = torch.cat(blocks).numpy()
        return features

    # ---- state ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path, extra: Mapping[str, Any] | None = None) -> None:
        """Write all that continuing bit for bit needs: safetensors and JSON, atomically. `extra` is the caller's.

        All ranks take part, and the first one writes.
        """
        self.require_finite()
        with self.whole():
            tensors = self.tensors()
            others = self.ranks.others({name: tensors[name] for name in GENERATORS})
        if self.ranks.first:
            checkpoint.write(folder, tensors | others, {**self.facts(), "extra": dict(extra or {})})

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Meanwhile the first rank's memory is that of all ranks, to be looked at. All ranks take part."""
        own, self.memory = self.memory, self.memory.whole()
        try:
            yield
        finally:
            self.memory = own

    def require_finite(self) -> None:
        """Refuse to go on from weights that have diverged."""
        if not all(bool(torch.isfinite(tensor).all()) for tensor in self.network.state_dict().values()):
            raise NonFiniteLoss(
                f"the weights after step {self.steps} are not finite: not saved; try a lower optimizer.lr.",
                [],
            )

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        encoder: nn.Module | None = None,
        device: str | torch.device = "cpu",
        ranks: Ranks = ALONE,
    ) -> Learner:
        """The learner that `save` wrote. One made with an encoder of its own needs that encoder again, for its code."""
        tensors, facts = checkpoint.read(folder)
        return cls.restore(tensors, facts, encoder=encoder, device=device, ranks=ranks)

    def facts(self) -> dict[str, Any]:
        """The part of the state that is not tensors."""
        return {
            "method": self.method,
            "image_size": self.image_size,
            "seed": self.seed,
            "settings": self.settings.model_dump(mode="json"),
            "own_encoder": self.own_encoder,
            "steps": self.steps,
            "seen": self.seen,
            "lr": self.lr,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The part of the state that is tensors: network, momentum, memory and random generators."""
        found = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        found |= {f"momentum.{name}": tensor for name, tensor in self._optimizer.momenta().items()}
        found |= {f"memory.{name}": tensor for name, tensor in self.memory.state().items()}
        found["generator.views"] = self._view_generator.get_state()
        found["generator.join"] = self.join.generator.get_state()
        return found

    @classmethod
    def restore(
        cls,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        *,
        encoder: nn.Module | None = None,
        device: str | torch.device = "cpu",
        ranks: Ranks = ALONE,
    ) -> Learner:
        """The learner that has these tensors and facts."""
        device = usable_device(device)  # or the checkpoint would be blamed
        try:
            if facts["own_encoder"] and encoder is None:
                raise CheckpointError("this learner was made with an encoder of its own: pass encoder= to load it.")
            settings = validate(LearnerSettings, facts["settings"])
            if settings.compute.ranks != ranks.size:
                raise CheckpointError(other_ranks("this learner", settings.compute.ranks, ranks.size))
            learner = cls(
                facts["method"],
                image_size=facts["image_size"],
                seed=facts["seed"],
                settings=settings,
                encoder=encoder,
                device=device,
                ranks=ranks,
            )
            learner.steps, learner.seen = facts["steps"], facts["seen"]
            learner.lr = facts.get("lr", settings.optimizer.lr)
            learner._load_tensors(tensors)
        except torch.OutOfMemoryError:  # nor is it to blame for that
            raise
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"this checkpoint does not fit this version or encoder: {error}.") from None
        return learner

    def _load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        tensors = self.ranks.saved(tensors, GENERATORS)

        def under(prefix: str) -> dict[str, Tensor]:
            return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

        self.network.load_state_dict(under("network."))
        self._optimizer.load_momenta(under("momentum."))
        self.memory.load_state(under("memory."))
        self._view_generator.set_state(tensors["generator.views"])
        self.join.generator.set_state(tensors["generator.join"])
