"""What a report says in words: which method did best, by how much, how sure, and whether the latent space decays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ocssl._core.table import mean_cell
from ocssl.results.compare import LEAST_PAIRS, OPEN, Difference, Standing, against, best_first, standing
from ocssl.results.compare import TOO_FEW as TOO_FEW_SEEDS
from ocssl.results.latent_decay import LEAST, Decay, find_decay, median_phase
from ocssl.results.read_runs import Evaluation, Run
from ocssl.results.run_groups import by_series, circumstances, comparable, known

WITHOUT_LABELS = "decay cannot be detected without labels"
MOST_LISTED = 6  # names in a sentence
DECAYS, NO_DECAY, UNKNOWN_DECAY = "decays", "no decay seen", "not measured"
# what gives a method more to work with, whatever its rules are
COMPUTE = ("encoder.name", "encoder.width", "schedule.passes", "schedule.batch", "memory.capacity", "init.sha256")
TOO_FEW = f"too few evaluations to tell decay ({LEAST} are needed)"


def summary(runs: Sequence[Run]) -> list[str]:
    """Sentences: how many runs, the best method, by how much, how sure, decay, and what else a reader should know."""
    runs = best_first(runs)
    below = [run for run in runs if run.start is not None and run.final is not None and run.final < run.start]
    listed = {
        "Ending below the untrained encoder": [run.label for run in below if run.finished],
        "Unfinished, so not compared": [run.label for run in runs if not run.finished],
        "Collapsed": [run.label for run in runs if run.collapsed],
    }
    words = [f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}.", *_rankings(runs), *_decay_sentence(runs)]
    words += [f"{what}: {', '.join(labels)}." for what, labels in listed.items() if labels]
    words += _skipped(runs)
    return words if listed["Collapsed"] else [*words, "Nothing collapsed."]


def _skipped(runs: Sequence[Run]) -> list[str]:
    """How many images were not used; files of other kinds are counted for themselves."""
    kinds = [file.image for run in runs for file in run.skipped]
    counts = {"image": kinds.count(True), "other file": kinds.count(False)}
    parts = [counted(count, what) for what, count in counts.items() if count]
    return [f"Skipped: {' and '.join(parts)}."] if parts else []


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "image"), counted(1200, "other file")
    ('1 image', '1,200 other files')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def unlike(runs: Sequence[Run]) -> list[str]:
    """In what the series that are compared differ beside their methods, a sentence for each group."""
    words = []
    for group in comparable(runs):
        series = {name: own[0].settings for name, own in by_series(group).items()}
        differences = []
        for key in COMPUTE:
            values: dict[str, list[str]] = {}
            for name, settings in series.items():
                values.setdefault(str(settings.get(key)), []).append(name)
            if len(values) > 1:
                differences.append(f"{key} ({', '.join(f'{value}: {_and(names)}' for value, names in values.items())})")
        if differences:
            what = "; ".join(differences)
            words.append(f"On {group[0].benchmark} the methods differ in more than their rules: {what}.")
    return words


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"


def _rankings(runs: Sequence[Run]) -> list[str]:
    """Sentences on each group of finished runs that can be compared."""
    groups = comparable(runs)
    words = [sentence for group in groups for sentence in _ranking(group, groups)]
    if len(groups) > 1:
        words.append("These groups are not compared with one another.")
    return words


def _ranking(runs: list[Run], groups: Sequence[list[Run]]) -> list[str]:
    """The best, the next and how sure that is, all over the seeds that every series has, if there are any."""
    now = standing(runs)
    compared, several, shared = now.compared, now.series, now.shared
    best, *others = now.ranked
    mean = fmean(known(compared[best], "average"))
    final = mean_cell(known(compared[best], "final"))
    where = f"On {runs[0].benchmark} ({circumstances(runs[0], [group[0] for group in groups])}) {best} has"
    if not others:
        return [f"{where} an average accuracy of {mean:.1f} % and a final one of {final} %."]
    second = compared[others[0]]
    gap = mean - fmean(known(second, "average"))
    margin = f"{gap:.1f} points above" if gap >= 0.05 else "less than 0.1 points above"
    end = f"its final accuracy is {final} %, that of {others[0]} {mean_cell(known(second, 'final'))} %."
    found = _gap(now)
    words = [f"{where} the best average accuracy: {mean:.1f} %, {margin} {others[0]}; {end}", sureness(found, best)]
    return words + (_missing(several, shared) if shared else [])


def _gap(now: Standing) -> Difference | None:
    """The best against the next, as in the table of comparisons."""
    return against(now.ranked[0], now.ranked[1], now.series).average if now.shared else None


def _missing(several: Mapping[str, Sequence[Run]], shared: set[int]) -> list[str]:
    """A sentence on seeds that some series have and others lack, if there are any."""
    every = {run.seed for own in several.values() for run in own} - {None}
    lacks = {name: len(every - {run.seed for run in own}) for name, own in several.items()}
    parts = [f"{name} lacks {count} of {len(every)}" for name, count in lacks.items() if count]
    which = f"seed {min(shared)}, the only one" if len(shared) == 1 else f"the {len(shared)} seeds"
    return [f"This is over {which} that all methods have finished: {_listed(parts)}."] if parts else []


def sureness(found: Difference | None, best: str) -> str:
    """How sure it is that the best method is better than the next."""
    if found is None:
        return "No seed is shared by all, so small differences may be chance."
    if found.pairs < LEAST_PAIRS:
        shared = "1 shared seed" if found.pairs == 1 else f"{found.pairs} shared seeds"
        return f"There are too few seeds to tell which is better: {shared}, and {LEAST_PAIRS} are needed."
    if found.half is None:
        return (
            f"Over {found.pairs} paired seeds the gap in average accuracy is {found.mean:+.1f} points each time: equal "
            "gaps show no spread, so there is no interval and nothing is decided."
        )
    gap = f"the gap in average accuracy is {found.low:+.1f} to {found.high:+.1f} points (95 %)"
    end = f"there is {OPEN}" if found.verdict == OPEN else f"{best} is {found.verdict}"
    return f"Over {found.pairs} paired seeds {gap}: {end}."


def phases(group: Sequence[Run]) -> list[Decay | None]:
    """The phase of decay, in per cent of the stream, of each run that has evaluations enough to tell."""
    found = []
    for run in group:
        there = [(e.share, e) for e in _measured(run) if e.share is not None]
        if len(there) >= LEAST:
            columns = ([e[key] for _, e in there] for key in ("deviation", "overlap", "accuracy"))
            found.append(find_decay([share for share, _ in there], *columns))
    return found


def _measured(run: Run) -> list[Evaluation]:
    """Evaluations of a trained encoder that say something about decay."""
    known = [e for e in run.evaluations if e["overlap"] is not None and e["accuracy"] is not None]
    return [e for e in known if e.experience > 0]


def decays(runs: Sequence[Run]) -> dict[str, Decay]:
    """The phase of decay of each series that has one."""
    found = {series: median_phase(phases(group)) for series, group in by_series(runs).items()}
    return {series: phase for series, phase in found.items() if phase}


def decay_words(group: Sequence[Run]) -> str:
    """Whether a series decays, and since when."""
    found = phases(group)
    if not found:
        if any(map(_measured, group)):
            return TOO_FEW
        overlaps = any(e["overlap"] is not None for run in group for e in run.evaluations)
        return WITHOUT_LABELS if overlaps else UNKNOWN_DECAY
    count, phase = sum(p is not None for p in found), median_phase(found)
    of = f" ({count} of {len(found)} seeds)" if len(found) > 1 and count else ""
    if phase is None:
        return f"decay in {count} of {len(found)} seeds only" if count else NO_DECAY
    until = "on" if phase.lasts else f"to {phase.end:.0f} %"
    packing = f", Deviation falling from {phase.packing:.0f} %" if phase.packing is not None else ""
    return f"{DECAYS} from {phase.start:.0f} % of the stream {until}{packing}{of}"


def _decay_sentence(runs: Sequence[Run]) -> list[str]:
    said = {series: decay_words(group) for series, group in by_series(runs).items()}
    parts = [f"{series} {words}" for series, words in said.items() if words.startswith(DECAYS)]
    parts += [f"{words} of {series}" for series, words in said.items() if words.startswith("decay in")]
    for what in (NO_DECAY, TOO_FEW):
        alike = [series for series, words in said.items() if words == what]
        parts += [f"{what} in {_listed(alike)}"] if alike else []
    return [f"Latent space: {'; '.join(parts)}."] if parts else []


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence; very many are counted."""
    if len(names) > MOST_LISTED:
        return f"{len(names)} methods"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def health(run: Run) -> str:
    """ok, or what is wrong, with how far an unfinished run has come."""
    done, total = run.minibatches
    far = f" ({done:.0f} of {total:.0f} minibatches)" if done is not None and total is not None else ""
    words = ["collapsed"] * run.collapsed + [f"unfinished{far}"] * (not run.finished)
    return ", ".join(words) or "ok"


def repeated(runs: Sequence[Run], groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """A note where runs with the same settings and seed stand for one."""
    more = len(runs) - sum(map(len, groups.values()))
    which = "Of runs with the same settings and seed the last counts, finished ones first"
    return [f"{which}; {more} {'is' if more == 1 else 'are'} left out."] if more else []


# ---- the few numbers that matter -------------------------------------------------------------------------------------

GOOD, BAD = "good-news", "bad-news"


@dataclass(frozen=True)
class Card:
    """A number with a title above and what it is from below."""

    title: str
    value: str
    words: str
    tone: str = ""
    series: str = ""  # whose line stands beside the value


def cards(runs: Sequence[Run]) -> list[Card]:
    """Who leads, by how much, how sure that is, and whether anything degrades."""
    groups = comparable(runs)
    if len(groups) == 1:
        found = _lead(standing(groups[0]))
    else:
        found = [_leader(standing(group), group[0].benchmark) for group in groups[:MOST_LEADERS]]
    return [*(found or _seen(runs)), _well(runs), *_finished(runs)]


MOST_LEADERS = 3


def _leader(now: Standing, benchmark: str = "") -> Card:
    best = now.ranked[0]
    mean, final = fmean(known(now.compared[best], "average")), mean_cell(known(now.compared[best], "final"))
    title = f"Leads on {benchmark}" if benchmark else "Leads" if len(now.ranked) > 1 else "Average accuracy"
    words = f"{mean:.1f} % average accuracy, {final} % final"
    return Card(title, best, words, series=best) if len(now.ranked) > 1 else Card(title, f"{mean:.1f} %", words)


def _lead(now: Standing) -> list[Card]:
    found = [_leader(now)]
    if len(now.ranked) > 1:
        best, second = now.ranked[:2]
        gap = fmean(known(now.compared[best], "average")) - fmean(known(now.compared[second], "average"))
        found.append(Card("By how much", f"{gap:+.1f} points", f"average accuracy above {second}, the next"))
        found.append(_sure(_gap(now), best, second))
    return found


def _sure(found: Difference | None, best: str, second: str) -> Card:
    title = "How sure"
    if found is None:
        return Card(title, TOO_FEW_SEEDS, f"{best} and {second} share no seed")
    seeds = "1 paired seed" if found.pairs == 1 else f"{found.pairs} paired seeds"
    if found.half is None:
        return Card(title, found.verdict, f"{seeds}, no interval")
    words = f"{found.low:+.1f} to {found.high:+.1f} points against {second} (95 %), {seeds}"
    return Card(title, found.verdict, words, GOOD if found.verdict not in (OPEN, TOO_FEW_SEEDS) else "")


def _well(runs: Sequence[Run]) -> Card:
    """Whether anything degrades: collapse, decay, an end below the beginning."""
    said = {series: decay_words(group) for series, group in by_series(runs).items()}
    wrong = {
        "collapsed": sum(any(run.collapsed for run in group) for group in by_series(runs).values()),
        "decays": sum(words.startswith(DECAYS) for words in said.values()),
    }
    parts = [f"{count} of {len(said)} {what}" for what, count in wrong.items() if count]
    if parts:
        return Card("Does anything degrade?", "yes", "; ".join(parts), BAD)
    unknown = sum(words in (TOO_FEW, UNKNOWN_DECAY, WITHOUT_LABELS) for words in said.values())
    if unknown:
        without = all(words == WITHOUT_LABELS for words in said.values())
        words = WITHOUT_LABELS if without else f"decay cannot be detected for {unknown} of {len(said)}"
        return Card("Does anything degrade?", "no collapse", words)
    return Card("Does anything degrade?", "no", "no collapse, no decay of the latent space", GOOD)


def _finished(runs: Sequence[Run]) -> list[Card]:
    done = sum(run.finished for run in runs)
    words = "all finished" if done == len(runs) else f"{len(runs) - done} unfinished, not compared"
    return [Card("Runs", f"{done} of {len(runs)}", words)] if len(runs) > 1 else []


def _seen(runs: Sequence[Run]) -> list[Card]:
    """What a run without labels says of itself."""
    found = []
    ended = [run.evaluations[-1] for run in runs if run.evaluations]
    if ended:
        found.append(Card("Images seen", f"{max(e.seen for e in ended):,.0f}", "no labels, so no accuracy"))
    for key, title, form, words in (
        ("deviation", "Deviation", ".3f", "how far views of one image lie apart"),
        ("overlap", "Overlap", ".0%", "pairs of images whose views mix"),
    ):
        curves = [[value for e in run.evaluations if (value := e[key]) is not None] for run in runs]
        if any(curves):
            first, last = (fmean(curve[end] for curve in curves if curve) for end in (0, -1))
            found.append(Card(title, f"{first:{form}} → {last:{form}}", f"{words}: untrained → now"))
    return found
