"""Figures of single sites: who took part, and how sure the model is of each one's pictures."""

from __future__ import annotations

from collections.abc import Sequence

from semifl.federation.signals import BINS
from semifl.report.advice import histograms, mean_confidence, odd_sites
from semifl.report.figures import Figure, nothing
from semifl.report.reading import Run, clients, counts
from semifl.report.svg import Cells, cell_chart

# Worst first: a cell that stands for several rounds or sites shows the worst of what happened.
OUTCOMES = {
    "failed": "failed",
    "rejected": "rejected",
    "late": "late",
    "abstained": "abstained",
    "trained": "trained",
}
MOST_ROWS, MOST_COLUMNS = 60, 80  # cells of the heat map
MOST_SITES = 24  # histograms whose names can be read
MOST_LISTED = 200  # sites in a table
LEVELS = 8  # shades of a share


def participation(run: Run) -> Figure:
    title = "Who took part"
    by_site = _outcomes(run)
    if not by_site:
        return nothing("participation", title, "No client has been asked: this method needs none, or no round is done.")
    sites = range(run.client_count)
    rounds = [record["round"] for record in run.rounds]
    deep, wide = -(-len(sites) // MOST_ROWS), -(-len(rounds) // MOST_COLUMNS)
    colours = _worst(by_site, rounds, deep, wide, -(-len(sites) // deep))
    rows = [run.site_name(site).removeprefix("client ") for site in sites[::deep]]
    alt = _who_words(run, by_site)
    caption = "A row per site, a column per round; empty where a site was not asked."
    if deep > 1 or wide > 1:
        caption += f" A cell stands for {deep} sites and {wide} rounds and shows the worst that happened in it."
    drawing = cell_chart(Cells(colours, rows, [str(index) for index in rounds[::wide]], "round"), alt)
    shown = {name for row in colours for name in row} - {""}
    legend = [(name, label) for name, label in OUTCOMES.items() if name in shown]
    table, note = _who_table(run, by_site)
    header = ["site", "pictures", "asked", *reversed(OUTCOMES), "last asked in round"]
    return Figure("participation", title, f"{caption} {alt}", alt, drawing, legend, header, table, note)


def _outcomes(run: Run) -> dict[int, dict[int, str]]:
    """By site and round what became of it."""
    by_site: dict[int, dict[int, str]] = {}
    for record in run.rounds:
        for client in clients(record, "cohort"):
            by_site.setdefault(client, {})[record["round"]] = "trained"
        for outcome in ("abstained", "late", "rejected", "failed"):
            for client in clients(record, outcome):
                by_site.setdefault(client, {})[record["round"]] = outcome
    return by_site


def _worst(
    by_site: dict[int, dict[int, str]], rounds: Sequence[int], deep: int, wide: int, rows: int
) -> list[list[str]]:
    """The cells of the heat map, each for `deep` sites and `wide` rounds."""
    column = {index: place // wide for place, index in enumerate(rounds)}
    badness = {outcome: place for place, outcome in enumerate((*OUTCOMES, ""))}
    cells = [[""] * (-(-len(rounds) // wide)) for _ in range(rows)]
    for site, happened in by_site.items():
        if site // deep >= rows:  # a damaged record may name a client that there is not
            continue
        row = cells[site // deep]
        for index, outcome in happened.items():
            row[column[index]] = min(row[column[index]], outcome, key=badness.__getitem__)
    return cells


def _who_words(run: Run, by_site: dict[int, dict[int, str]]) -> str:
    all_ = [outcome for rounds in by_site.values() for outcome in rounds.values()]
    said = [f"{all_.count(name)} {name}" for name in reversed(OUTCOMES) if name in all_]
    return f"{len(by_site)} of {run.client_count} sites were asked {len(all_)} times in all: {', '.join(said)}."


def _who_table(run: Run, by_site: dict[int, dict[int, str]]) -> tuple[list[list[str]], str]:
    pictures = counts(run.world.get("client_pictures"))
    rows = []
    for site in range(min(run.client_count, MOST_LISTED)):
        happened = list(by_site.get(site, {}).values())
        rows.append(
            [
                run.site_name(site),
                f"{pictures[site]:.0f}" if site < len(pictures) else "",
                str(len(happened)),
                *(str(happened.count(name)) for name in reversed(OUTCOMES)),
                str(max(by_site[site])) if site in by_site else "never",
            ]
        )
    return rows, f"The first {MOST_LISTED} of {run.client_count} sites." if run.client_count > MOST_LISTED else ""


def confidence(run: Run) -> Figure:
    """Each site's histogram of confidence in the last round that it took part in, the least sure on top."""
    title = "How sure the model is at each site"
    latest: dict[int, list[float]] = {}
    for record in run.rounds:
        latest |= histograms(record)
    if not latest:
        why = "Confidence by site was not recorded: no client has labeled anything, or the run is from before it was."
        return nothing("confidence", title, why)
    odd = {each.client for each in odd_sites(run)}
    order = sorted(latest, key=lambda site: mean_confidence(latest[site]))
    shown = order[:MOST_SITES]
    colours = [[shade(count / sum(latest[site])) for count in latest[site]] for site in shown]
    names = [f"{'▸ ' if site in odd else ''}{run.site_name(site).removeprefix('client ')}" for site in shown]
    steps = [f"{i / BINS:.1f}" for i in range(BINS)]
    least, most = order[0], order[-1]
    low, high = mean_confidence(latest[least]), mean_confidence(latest[most])
    alt = (
        f"Confidence of {len(latest)} sites. The least sure is {run.site_name(least)} with a mean of {low:.2f}, "
        f"the surest {run.site_name(most)} with {high:.2f}."
    )
    alt += f" Far below the others: {', '.join(run.site_name(site) for site in sorted(odd)[:10])}." if odd else ""
    caption = (
        "A row per site, the least sure on top; the stronger the colour, the more of its pictures have that confidence "
        "in the last round it took part in. A site that stays far below the others (▸) may hold classes that the "
        f"server has never seen. {alt}"
    )
    caption += f" Shown are the {MOST_SITES} least sure." if len(order) > MOST_SITES else ""
    header = ["site", "mean", *(f"{i / BINS:.1f} to {(i + 1) / BINS:.1f}" for i in range(BINS))]
    rows = [[run.site_name(site), f"{mean_confidence(latest[site]):.2f}", *_whole(latest[site])] for site in order]
    drawing = cell_chart(Cells(colours, names, steps, "confidence, from"), alt)
    return Figure("confidence", title, caption, alt, drawing, [], header, rows[:MOST_LISTED])


def shade(share: float) -> str:
    """A class of the style sheet, the darker the larger the share; "" for none."""
    return f"q{min(LEVELS, 1 + int(share * LEVELS))}" if share > 0 else ""


def _whole(bins: list[float]) -> list[str]:
    return [f"{count:.0f}" for count in bins]
