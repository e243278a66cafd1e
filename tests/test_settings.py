"""Settings: layers, dotted keys, TOML round trip, and errors that help."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from ocssl import recipes
from ocssl._core.registry import Registry
from ocssl.encoders import ENCODERS
from ocssl.errors import SettingError, nearest, unknown
from ocssl.runs.config import RunSettings, parse_assignments, read_settings, resolve_run, to_toml
from ocssl.settings import LearnerSettings, flatten, keys, merge, nest, validate


def test_the_defaults_are_the_papers() -> None:
    settings = LearnerSettings()
    schedule, optimizer = settings.schedule, settings.optimizer
    assert (schedule.passes, schedule.batch, schedule.stream_batch) == (6, 138, 10)
    assert (settings.memory.capacity, settings.memory.ema, settings.encoder.name) == (2000, 0.5, "resnet18")
    assert resolve_run("solar", "cifar100", 0, {}).encoder.model_extra == {"width": 64, "stem": "auto"}
    assert (optimizer.name, optimizer.lr, optimizer.momentum, optimizer.weight_decay) == ("sgd", 0.05, 0.9, 1e-4)


def test_dotted_and_nested_keys_mean_the_same() -> None:
    assert nest({"a.b.c": 1, "a": {"b": {"d": 2}}}) == {"a": {"b": {"c": 1, "d": 2}}}


def test_merging_goes_into_tables_and_copies_them() -> None:
    base: dict[str, Any] = {"a": {"x": 1}}
    over = {"a": {"y": 2}, "b": {"z": 3}}
    merge(base, over)
    base["b"]["z"] = 4
    assert base == {"a": {"x": 1, "y": 2}, "b": {"z": 4}}
    assert over["b"] == {"z": 3}


def test_layers_are_laid_over_one_another_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        ("benchmarks", "synthetic"): {
            "summary": "b",
            "memory": {"capacity": 100, "ema": 0.1},
            "optimizer": {"lr": 0.2},
            "methods": {"solar": {"optimizer": {"lr": 0.3}}},
        },
        ("methods", "solar"): {"summary": "m", "memory": {"capacity": 7}},
    }
    monkeypatch.setattr(recipes, "_read", lambda kind, name: {**tables[kind, name]})
    tree = recipes.resolve("solar", "synthetic", {"schedule.passes": 2})
    assert tree == {"memory": {"capacity": 7, "ema": 0.1}, "optimizer": {"lr": 0.3}, "schedule": {"passes": 2}}


@pytest.mark.parametrize("method", list(recipes.methods()))
@pytest.mark.parametrize("benchmark", list(recipes.benchmarks()))
def test_every_method_resolves_on_every_benchmark_and_survives_toml(
    method: str, benchmark: str, tmp_path: Path
) -> None:
    settings = resolve_run(method, benchmark, 5, {})
    (tmp_path / "run.toml").write_text(to_toml(settings))
    assert read_settings(tmp_path / "run.toml") == settings
    assert tomllib.loads(to_toml(settings))["seed"] == 5


def test_options_of_parts_are_written_out_in_the_record() -> None:
    table = tomllib.loads(to_toml(resolve_run("solar", "synthetic", 0, {})))
    assert table["encoder"] == {"name": "resnet10", "freeze": 0, "batch_norm": "train", "width": 16, "stem": "auto"}
    assert table["objective"] == {"name": "simsiam", "projection": 512, "weight": 1.0}
    assert table["memory"]["rules"]["least-drawn"] == {"probability": "softmax", "temperature": 1.0}
    assert {"weight", "k", "short", "detach_angle"} == table["terms"]["overlap"].keys()
    assert {"classes", "train", "test"} <= table["stream"].keys()


def test_a_width_is_asked_of_any_encoder_that_has_one_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    other = resolve_run("solar", "synthetic", 0, {"encoder.name": "resnet18"}).encoder
    assert other.model_dump(exclude_none=True) == {
        "name": "resnet18",
        "freeze": 0,
        "batch_norm": "train",
        "width": 16,
        "stem": "auto",
    }
    monkeypatch.setattr(ENCODERS, "_parts", {**ENCODERS._parts, "plain": type("Plain", (), {})})
    plain = resolve_run("solar", "synthetic", 0, {"encoder.name": "plain"}).encoder
    assert plain.model_dump(exclude_none=True) == {"name": "plain", "freeze": 0, "batch_norm": "train"}
    with pytest.raises(SettingError, match=r"unknown setting 'encoder\.width'"):
        resolve_run("solar", "synthetic", 0, {"encoder.name": "plain", "encoder.width": 4})


def test_another_optimizer_leaves_the_options_of_the_recipes_own_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[optimizer]\nname = "adamw"\nlr = 0.001\nbeta1 = 0.8\n')
    mine = str(tmp_path / "mine.toml")
    own = resolve_run(mine, "synthetic", 0, {}).optimizer
    assert own.model_extra == {"beta1": 0.8, "beta2": 0.999, "eps": 1e-8}
    other = resolve_run(mine, "synthetic", 0, {"optimizer.name": "sgd"}).optimizer
    assert (other.model_extra, other.lr) == ({}, 0.001)


def test_a_run_of_earlier_versions_has_the_optimizer_of_then(tmp_path: Path) -> None:
    now = resolve_run("solar", "synthetic", 0, {})
    table = to_toml(now).replace('name = "sgd"\n', "")
    assert table != to_toml(now)
    (tmp_path / "run.toml").write_text(table)
    assert read_settings(tmp_path / "run.toml") == now


def test_benchmarks_have_the_titles_of_papers() -> None:
    assert (recipes.title("cifar100"), recipes.title("inat")) == ("CIFAR-100", "iNaturalist")
    assert recipes.title("synthetic") == "synthetic"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("k=5", 5),
        ("k=0.5", 0.5),
        ("k=true", True),
        ("k=[1, 2]", [1, 2]),
        ("k=fifo", "fifo"),
        ('k="5"', "5"),
        ("k=", ""),
    ],
)
def test_assignments_are_read_as_toml_or_text(word: str, value: Any) -> None:
    assert parse_assignments([word]) == {"k": value}


def test_every_setting_has_a_dotted_key() -> None:
    found = set(keys(RunSettings)) | dict(flatten(resolve_run("solar", "cifar100", 0, {}).model_dump())).keys()
    wanted = "memory.capacity memory.keep memory.draw schedule.passes schedule.batch schedule.stream_batch "
    wanted += "schedule.stream_in encoder.name encoder.width optimizer.lr objective.name stream.image_size "
    wanted += "stream.fraction stream.experiences"
    assert set(wanted.split()) <= found


def test_the_nearest_name_is_offered_only_when_it_is_near() -> None:
    assert nearest("resevoir", ["fifo", "reservoir"]) == "reservoir"
    assert nearest("zzz", ["fifo", "reservoir"]) is None
    assert "known: fifo, reservoir" in str(unknown("rule", "zzz", ["reservoir", "fifo"]))


def test_validation_names_key_value_and_range() -> None:
    with pytest.raises(SettingError, match=r"optimizer\.momentum is 1\.5: .*less than 1"):
        validate(LearnerSettings, {"optimizer": {"momentum": 1.5}})


def test_settings_never_change_later() -> None:
    with pytest.raises(Exception, match="frozen"):
        LearnerSettings().memory.capacity = 3


class Part:
    """A part.

    More about it.
    """

    def __init__(self, wired: str, *, size: Annotated[int, Field(gt=0)] = 3, name: str | None = None) -> None:
        self.wired, self.size, self.name = wired, size, name


def registry() -> Registry[Part]:
    parts: Registry[Part] = Registry("part")
    parts.add("one")(Part)
    return parts


def test_a_registry_builds_with_wiring_and_checked_options() -> None:
    part = registry().build("one", {"size": "4"}, "wire")
    assert (part.wired, part.size, part.name) == ("wire", 4, None)
    assert registry().summary("one") == "A part."
    assert registry().complete("one", {"size": 9}) == {"size": 9}
    assert list(registry()) == ["one"]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("on", {}, "unknown part 'on': did you mean 'one'"),
        ("one", {"sise": 1}, "did you mean 'size'"),
        ("one", {"wired": "x"}, "'wired'"),
        ("one", {"size": 0}, "option size is 0: Input should be greater than 0"),
    ],
)
def test_a_registry_refuses_with_the_nearest_name(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        registry().build(name, options, "wire")


def test_a_name_is_registered_once() -> None:
    add = registry().add("one")
    with pytest.raises(ValueError, match="twice"):
        add(Part)


@pytest.mark.parametrize("name", ["two words", "a.b", "", "é", "a/b"])
def test_a_part_has_a_name_that_settings_can_spell(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        Registry[Any]("term").add(name)(type("Part", (), {}))


def test_a_keep_rule_and_a_draw_rule_never_share_a_name() -> None:
    from ocssl.memory import DRAWS, KEEPS

    with pytest.raises(ValueError, match="registered twice"):
        DRAWS.add("fifo")(type("Part", (), {}))
    with pytest.raises(ValueError, match="registered twice"):
        KEEPS.add("uniform")(type("Part", (), {}))


def test_an_option_needs_a_default_but_no_type() -> None:
    registry: Registry[Any] = Registry("term")

    class Needy:
        def __init__(self, *, a: int) -> None: ...

    class Loose:
        def __init__(self, *, a=3):  # type: ignore[no-untyped-def]
            self.a = a

    with pytest.raises(ValueError, match="option a has no default"):
        registry.add("needy")(Needy)
    assert "needy" not in registry
    registry.add("loose")(Loose)
    assert registry.build("loose", {"a": "x"}).a == "x"
