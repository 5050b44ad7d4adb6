"""Coupling entropy along iterations or epochs: how undecided each child is."""

import math
from typing import Any

import numpy as np

from graphcaps.viz import style
from graphcaps.viz.routing.picture import Picture
from graphcaps.viz.routing.timeline import between
from graphcaps.viz.routing_trace import RoutingTrace

_MOST_CURVES = 60  # at most this many children have a curve


def entropies(trace: RoutingTrace, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entropies (..., I') of the I' children with edges for couplings (..., E), and (I',) those of equal couplings.

    In nats, they are -sum of c ln c over a child's edges, and ln of the number of its edges. First c is divided by its
    sum, which float16 leaves at 1 within 5e-4.
    """
    linked = trace.degrees > 0
    total = trace.per_child(c)[..., trace.src]
    share = np.divide(c, total, out=np.zeros_like(c), where=total > 0)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return -trace.per_child(share * logs)[..., linked], np.log(trace.degrees[linked])


class EntropyPicture(Picture):
    """Coupling entropy over iterations or epochs: the mean over children, with a dot at the current position.

    Of more than 60 children, 60 have curves, in the colours of the parents that they are coupled with most.
    """

    def draw(self) -> None:
        time, medium, trace, screen = self.timeline, self.medium, self.trace, self.medium.heading
        self.figure = style.blank(medium.width, 400 if screen else 230)
        self._heading = style.Heading(self.figure, medium)
        axes = self.figure.add_axes((0.115, 0.135, 0.715, 0.585) if screen else (0.185, 0.16, 0.64, 0.655))
        self._entropies, levels = entropies(trace, time.c)  # (S, I'), (I',)
        small: dict[str, Any] = {"size": medium.small, "color": medium.muted}
        highest, self._level = float(levels.max()) or 1.0, float(levels.mean())
        axes.set(xlim=(-0.2, time.end + 0.2), ylim=(0, 1.06 * highest))
        axes.set_yticks([0, 1, 2] if 2 < highest < 3 else [0, round(highest / 2, 1)])
        iteration = "iteration" if trace.agreement is None else "routing iteration"
        label = iteration if time.over == "iterations" else "epoch of training (those kept)"
        axes.set_xlabel(label + f"  ({self.source})" * (screen and bool(self.source)), **small)
        axes.set_ylabel("coupling entropy (nat)")
        ticks = range(0, len(time), math.ceil(len(time) / 20))
        axes.set_xticks(ticks, [str(time.steps[k]) for k in ticks])
        axes.axhline(self._level, color=medium.muted, lw=0.9, ls=(0, (4, 3)))
        name = f"ln {round(math.exp(self._level))} = " if np.all(levels == levels[0]) else ""
        linked = np.unique(trace.src)
        few = np.linspace(0, len(linked) - 1, min(len(linked), _MOST_CURVES)).round().astype(int)
        some = f"; {len(few)} of {len(linked):,} curves" * (len(few) < len(linked))
        axes.set_title(f"dashed: equal couplings, {name}{self._level:.2f}{some}", loc="left", **small)
        order = np.argsort(time.c[-1], kind="stable")
        strongest = np.zeros(trace.num_children, int)
        strongest[trace.src[order]] = trace.dst[order]  # the strongest come last
        axes.set_prop_cycle(color=[self.color(j) for j in strongest[linked[few]]])
        axes.plot(self._entropies[:, few], lw=1.6 * medium.line)
        (self.mean,) = axes.plot(self._entropies.mean(axis=1), color=medium.ink, lw=2.6 * medium.line)
        (self._tip,) = axes.plot([], [], "o", color=medium.ink, ms=6 * medium.line, clip_on=False)
        self._value = axes.annotate("", (0, 0), (6, 0), va="top", textcoords="offset points", size=medium.small)

    def show(self, position: float) -> None:
        values = between(self._entropies, position)
        mean = float(values.mean())
        self._tip.set_data([position], [mean])
        self._value.xy = (position, mean)
        self._value.set_text(f"mean {mean:.2f}")
        share = f", {mean / self._level:.1%} of uniform" if self._level > 0 else ""
        line = f"{self.timeline.title(position)}: mean entropy {mean:.3f} ± {values.std():.3f} nat{share}"
        self._heading.say(self.choice(position), line)
