"""The online learner: Algorithm 1 of the SOLAR paper, over parts that recipes choose."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor, nn

from ocssl import recipes
from ocssl._core import checkpoint
from ocssl._core.exclusive_call import Lock, exclusive, own_torch_state
from ocssl._core.host_memory import check_memory
from ocssl._core.random import evaluating, generator_for, single_sample
from ocssl._core.transfer import send
from ocssl._distributed.ranks import ALONE, Ranks, other_ranks
from ocssl._training import assembly
from ocssl._training.assembly import usable_device
from ocssl._training.batch import Join, as_ids, as_images
from ocssl._training.checkpoint_checks import check_facts, check_layouts, check_state, check_values
from ocssl._training.finetune import keep_frozen, rest_encoder
from ocssl._training.learner_context import LearnerContext
from ocssl._training.non_finite import Guard
from ocssl.data.decode.decoder import Fit
from ocssl.data.decode.pixels import pixels_of
from ocssl.errors import CheckpointError, NonFiniteLoss, SettingError
from ocssl.objectives import Output
from ocssl.objectives.sample_statistics import Info, MeasureSamples, SampleStatistics, summarise_steps
from ocssl.settings import LearnerSettings, checked_float, checked_int, validate
from ocssl.terms import Step
from ocssl.views import Views

Device = str | torch.device
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

    @own_torch_state()
    def __init__(
        self,
        method: str = "solar",
        *,
        image_size: int | None = None,
        seed: int = 0,
        settings: Mapping[str, Any] | LearnerSettings | None = None,
        encoder: nn.Module | None = None,
        device: Device = "cpu",
        ranks: Ranks = ALONE,
        fit: Fit = "crop",
    ) -> None:
        if not isinstance(settings, LearnerSettings):
            settings = validate(LearnerSettings, recipes.resolve(method, None, {} if settings is None else settings))
        if image_size is None:
            image_size = assembly.native_size(settings)
        image_size = checked_int("image_size", image_size, 4, 1024)
        seed = checked_int("seed", seed, 0, 2**63 - 1)
        self.method, self.image_size, self.seed, self.settings = method, image_size, seed, settings
        self.fit = fit  # how PIL images and files become square: squash or crop
        self.device = usable_device(device)
        self.ranks = ranks  # the processes that train this learner together
        self.lock = Lock()
        self.steps, self.seen = 0, 0
        self.own_encoder = encoder is not None
        self.views = Views(settings.views, image_size)
        self._view_generator = generator_for(seed, ranks.named("views"))
        self.join = Join(settings.schedule, generator_for(seed, ranks.named("join")))
        self.objective = assembly.build_objective(settings, image_size, encoder, generator_for(seed, "weights"))
        self.terms = assembly.build_terms(settings, self.objective, seed)
        ranks.require(settings, assembly.named_parts(settings, self.terms))
        self.measure = MeasureSamples(settings.memory, self.objective.dimension, self.objective.projection, ranks)
        parts = {"objective": self.objective, "terms": nn.ModuleDict(self.terms), "measure": self.measure}
        self.network = nn.ModuleDict(parts).train()
        ranks.synchronise(self.network)
        keep_frozen(self.network)
        self.objective.ranks = ranks
        self.network.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.memory = assembly.build_memory(settings, image_size, self.objective, self.terms, seed, self.device, ranks)
        self._guard = Guard(self.device)
        self._optimizer = assembly.build_optimizer(settings, self.network, self._guard)
        if settings.compute.compile:
            assembly.compile_encoder(self.objective, self.device)

    def __repr__(self) -> str:
        stored = f"{len(self.memory)} of {self.settings.memory.capacity} slots"
        done = f"steps={self.steps}, seen={self.seen}, memory={stored}"
        return f"Learner({self.method!r}, image_size={self.image_size}, {done})"

    # ---- Algorithm 1 ------------------------------------------------------------------------------------------------

    @exclusive
    def partial_fit(self, images: Any, ids: Any = None) -> Info:
        """Learn from one stream minibatch, uint8 [b, 3, H, W] or [b, H, W, 3]; more than `schedule.batch` is cut up.

        A list of PIL images or paths is resized as a run resizes its images.
        Of several ranks each is given the whole minibatch, and takes its rows.
        After a NonFiniteLoss the weights are those before the refused step; load the last save to continue.
        """
        images = as_images(self._images(images), self.image_size)  # also refuses an empty list
        ids = as_ids(ids, len(images), self.seen)
        size = self.settings.schedule.batch
        history: list[dict[str, Tensor]] = []
        for stream, stream_ids in zip(images.split(size), ids.split(size), strict=True):
            mine = self.ranks.mine(self.seen)
            out = self._fit_minibatch(send(stream[mine], self.device), send(stream_ids[mine], self.device), history)
            self._guard.settle()
        return summarise_steps(history, out.features[0], self.steps, self.seen, self.ranks)

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
            (views, *local), replay = self.join(self._see(batch), fresh, replay)
            rows = self.ranks.count(views.shape[1])
            with single_sample(self.network, alone=rows.total == 1):
                out: Output = self.objective(views, *local)
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
        """How many samples to draw beside `fresh` stream rows: this rank's share of what all ranks draw."""
        ranks = self.ranks
        return ranks.share(self.join.wanted(ranks.total(fresh), ranks.total(len(self.memory))))

    def _images(self, given: Any) -> Tensor:
        """uint8 [b, 3, size, size]: arrays of that size as they are, PIL images and files resized."""
        size = self.image_size
        if tuple(getattr(given, "shape", ())) in ((0, 3, size, size), (0, size, size, 3)):
            return torch.empty(0, 3, size, size, dtype=torch.uint8)
        listed = isinstance(given, list | tuple) and all(isinstance(x, str | PathLike | Image) for x in given)
        if isinstance(given, list | tuple) and listed:
            return torch.from_numpy(pixels_of(given, size, self.fit))
        return as_images(given, size)

    def _see(self, images: Tensor) -> tuple[Tensor, ...]:
        return self.views.crops(images, self._view_generator, self.objective.views)

    @torch.no_grad()
    def _glance(self, images: Tensor) -> dict[str, Tensor]:
        """Statistics of images before any training on them: as they are, in eval mode, nothing remembered."""
        plain = self.views.plain(images)
        with evaluating(self.network):
            out = self.objective(plain.expand(self.objective.views, *plain.shape))
            measured: SampleStatistics = self.measure(out)
        return measured.rows(slice(None))

    def _context(self, stream: Tensor) -> LearnerContext:
        return LearnerContext(self.objective, self.views, self._view_generator, stream, self.lr)

    def _step(self, loss: Tensor, losses: Tensor, ids: Tensor) -> None:
        """One optimizer step on the sum of all ranks' losses, or none if it is not finite."""
        ranks = self.ranks
        guard, optimizer, ids = self._guard, self._optimizer, ranks.gather(ids)
        guard.watch_loss(ranks.sum(loss.detach()), ranks.gather(losses.detach()), ids, self.steps)
        optimizer.zero_grad()
        loss.backward()
        ranks.add_gradients(optimizer.parameters.values())
        guard.watch_gradient(optimizer.parameters.values(), ids, self.steps)
        if self.steps < self.settings.optimizer.encoder_start:
            rest_encoder(self.network)  # heads with random weights would lead it astray
        optimizer.step()
        guard.watch_weights(optimizer.parameters.values(), ids, self.steps)
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
        self._optimizer.lr = checked_float("lr", rate, 0.0)

    @exclusive
    def boundary(self) -> None:
        """Say that an experience has ended. Only recipes with `schedule.boundaries` may know; others refuse."""
        if not self.settings.schedule.boundaries:
            offline = "offline recipes set schedule.boundaries=true"
            raise SettingError(f"method {self.method!r} must not know where an experience ends; {offline}.")
        for term in self.terms.values():
            term.boundary(self.objective)

    @property
    def encoder(self) -> nn.Module:
        """The network that is evaluated and kept."""
        own = [term.evaluated() for term in self.terms.values()]
        return next((encoder for encoder in own if encoder is not None), self.objective.encoder)

    @exclusive
    @torch.no_grad()
    def transform(self, images: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Features of images, float32 [n, d]: the encoder in eval mode. The learner stays as it is.

        Images are arrays or tensors as `partial_fit` takes, or a list of PIL images or paths; none gives none.
        """
        images = self._images(images)
        encoder = self.encoder
        if not len(images):
            return np.empty((0, self.objective.dimension), np.float32)
        with evaluating(encoder):
            blocks = [encoder(self.views.plain(block.to(self.device))).float().cpu() for block in images.split(BLOCK)]
        features: np.ndarray[Any, np.dtype[np.float32]] = torch.cat(blocks).numpy()
        return features

    # ---- state ------------------------------------------------------------------------------------------------------

    @exclusive
    def save(self, folder: str | Path, extra: Mapping[str, Any] | None = None) -> None:
        """Write all that continuing bit for bit needs: safetensors and JSON, atomically. `extra` is the caller's.

        All ranks take part, and the first one writes.
        """
        self.require_finite()
        if not isinstance(extra, Mapping | None) or not _is_json(extra):
            raise CheckpointError(
                f"cannot save to {folder}: extra must be JSON, a dict of finite numbers, text and lists."
            )
        with self.gathered_memory():
            tensors = self.tensors()
            others = self.ranks.others({name: tensors[name] for name in GENERATORS})
        if self.ranks.first:
            checkpoint.write(folder, tensors | others, {**self.facts(), "extra": dict(extra or {})})

    @contextmanager
    def gathered_memory(self) -> Iterator[None]:
        """For a while the first rank's memory is that of all ranks, to be read. All ranks take part."""
        own, self.memory = self.memory, self.memory.gathered()
        try:
            yield
        finally:
            self.memory = own

    def require_finite(self) -> None:
        """Refuse to save weights that have diverged."""
        if not all(bool(torch.isfinite(tensor).all()) for tensor in self.network.state_dict().values()):
            said = f"the weights after step {self.steps} are not finite: not saved; try a lower optimizer.lr."
            raise NonFiniteLoss(said, [])

    @classmethod
    @own_torch_state()
    def load(
        cls, folder: str | Path, *, encoder: nn.Module | None = None, device: Device = "cpu", ranks: Ranks = ALONE
    ) -> Learner:
        """The learner that `save` wrote, or the last checkpoint of a run. A custom encoder must be passed again."""
        tensors, facts = checkpoint.read(checkpoint.newest(folder), partial(check_state, encoder=encoder))
        return cls.restore(tensors, facts, encoder=encoder, device=device, ranks=ranks)

    @exclusive
    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        made = memo[id(self)] = self.__class__.__new__(self.__class__)
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made

    @exclusive
    def facts(self) -> dict[str, Any]:
        """The part of the state that is not tensors."""
        return {
            "method": self.method,
            "image_size": self.image_size,
            "seed": self.seed,
            "settings": self.settings.model_dump(mode="json"),
            "own_encoder": self.own_encoder,
            "fit": self.fit,
            "steps": self.steps,
            "seen": self.seen,
            "lr": self.lr,
        }

    @exclusive
    def tensors(self) -> dict[str, Tensor]:
        """The part of the state that is tensors: network, optimizer, memory and random generators."""
        found = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        found |= self._optimizer.tensors()
        found |= {f"memory.{name}": tensor for name, tensor in self.memory.state().items()}
        found["generator.views"] = self._view_generator.get_state()
        found["generator.join"] = self.join.generator.get_state()
        return found

    @classmethod
    @own_torch_state()
    def restore(
        cls,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        *,
        encoder: nn.Module | None = None,
        device: Device = "cpu",
        ranks: Ranks = ALONE,
    ) -> Learner:
        """The learner that has these tensors and facts."""
        device = usable_device(device)  # or the checkpoint would be blamed
        check_facts(facts)
        check_values(tensors)
        try:
            if facts["own_encoder"] and encoder is None:
                raise CheckpointError("this learner has a custom encoder: pass encoder= to load it.")
            settings = validate(LearnerSettings, facts["settings"])
            if settings.compute.ranks != ranks.size:
                raise CheckpointError(other_ranks("this learner", settings.compute.ranks, ranks.size))
            given = {name: facts[name] for name in ("method", "image_size", "seed")}
            blank = assembly.without_weights(settings)
            learner = cls(**given, settings=blank, encoder=encoder, device=device, ranks=ranks)
            learner.settings = settings
            learner.fit = "crop" if facts.get("fit") == "crop" else "squash"
            learner.steps, learner.seen = facts["steps"], facts["seen"]
            learner.lr = facts.get("lr", settings.optimizer.lr)
            learner._load_tensors(tensors)
        except torch.OutOfMemoryError:  # nor is it to blame for that
            raise
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            check_memory(error)
            reason = str(error).partition("\n")[0]
            raise CheckpointError(f"this checkpoint does not fit this version or encoder: {reason}.") from None
        return learner

    def _load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        tensors = self.ranks.saved(tensors, GENERATORS)
        check_layouts(tensors, self.tensors())

        def under(prefix: str) -> dict[str, Tensor]:
            return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

        self.network.load_state_dict(under("network."))
        self._optimizer.load(tensors)
        self.memory.load_state(under("memory."))
        self._view_generator.set_state(tensors["generator.views"])
        self.join.generator.set_state(tensors["generator.join"])


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
