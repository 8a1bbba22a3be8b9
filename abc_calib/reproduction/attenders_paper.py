"""The numbers of two papers on location attention, as printed there.

RC: Ray Chowdhury & Caragea, "Monotonic Location Attention for Length Generalization" (2023):
tables 2, 4 and 7 (accuracy, %), 3 (SCAN, %) and 9 (edit distance); medians of five runs, SCAN
means of five. DU: Dubois et al., "Location Attention for Extrapolation to Longer Sequences"
(2020): table 3 (attention loss, mean of three tasks and five runs); its figures 6 to 8 print no
numbers, what the text says of them is in section 7.

Attenders and tasks have the names of the command line.
"""

from __future__ import annotations

from abc_calib.reproduction.cells import MEAN, Place

COPYING = (15, 30, 100)
LOOKUP = (7, 9, 11)
"""Lengths of the columns of RC's tables: digits of the copy family, words of a lookup."""
INTERPOLATION = 6
LONGER = (6, 7, 8, 9, 10, 11)
"""DU's interpolation and long 1 to long 5: words of a source without noise."""
SCAN_LENGTH = 48
"""The longest target of SCAN's length split, as whose length its test set is stored."""

TASKS: dict[str, tuple[int, ...]] = {
    "copy": COPYING,
    "reverse_copy": COPYING,
    "lookup": LOOKUP,
    "reverse_lookup": LOOKUP,
    "recopy": COPYING,
    "reverse_recopy": COPYING,
    "inv_recopy": COPYING,
    "inv_reverse_recopy": COPYING,
}
"""RC's tasks in the order of its columns, each with its three lengths."""

# fmt: off
ACCURACY = {
    "content":
        "0/0/0 0/0/0 33.3/0/0 3.7/0/0 "
        "19.1/0/0 25/0/0 0.05/0/0 0/0/0",
    "relative":
        "100/100/100 0/0/0 100/100/100 78.2/0.8/0.4 "
        "43.1/0/0 0.1/0/0 75.9/0/0 0/0/0",
    "loc":
        "99.8/0/0 0.7/0/0 100/9.4/0 13.3/0/0 "
        "79.6/0/0 19.7/0/0 99.4/58.8/0 97.9/0.3/0",
    "bi_relative":
        "100/100/100 100/100/100 100/100/100 100/100/100 "
        "33.4/0/0 35.3/0/0 69.8/0/0 71.3/0/0",
    "one_step":
        "100/100/100 100/100/100 100/100/100 100/100/100 "
        "100/100/100 100/100/100 0.1/0/0 0/0/0",
    "mono":
        "100/100/100 100/100/100 100/98/29.9 28.5/0/0 "
        "100/100/100 100/100/100 100/100/98.8 100/99.9/98.3",
    "no_step2":
        "100/1.4/0 100/98.6/0 99.2/2.34/0 99.8/0/0 "
        "15.9/0/0 16.9/0/0 95.5/0/0 96.2/0/0",
    "no_step3":
        "6.9/0/0 0/0/0 41.9/0/0 22.9/0/0 "
        "100/100/100 100/100/99.9 40.3/0/0 45/0/0",
    "no_sigmoid":
        "100/100/99.8 100/100/100 100/74.3/0.3 19.1/0/0 "
        "100/100/100 100/100/100 0/0/0 22/0/0",
    "bi_rope":
        "100/100/0 100/100/0 100/100/100 89.5/1.6/0.2 "
        "43.4/0/0 39/0/0 56/0/0 53.1/0/0",
    "mix_loc":
        "99.8/0/0 1.5/0/0 8.6/0/0 7.5/0/0 "
        "36.1/0/0 30.4/0/0 99.6/65.1/0 98.6/24.1/0",
    "loc_s":
        "100/26.6/0 100/74.1/0 100/46.3/0 99.6/0.1/0 "
        "98.7/5.2/0 99.9/1.4/0 100/99.3/91.1 99.9/99.3/91.8",
    "mix_loc_s":
        "99.7/0/0 85.9/0/0 33.5/0/0 3.5/0/0 "
        "99.7/0/0 99.6/0/0 98.9/66.6/0 98.8/57.7/0",
    "mix_loc_s_pr":
        "83.6/0/0 99.7/10.5/0 32.9/0/0 1.1/0/0 "
        "99.6/0.4/0 100/61.4/0 99.8/98.6/88 99.6/98.1/84.8",
    "mix_one_step":
        "2.6/0/0 0.4/0/0 100/71.7/1.6 100/79.1/8.1 "
        "43.5/0/0 87.1/0/0 10.4/0/0 5.45/0/0",
    "mix_one_step_pr":
        "100/100/100 100/100/100 100/100/47.8 57.5/0/0 "
        "99.9/88.4/30.2 100/100/100 0/0/0 0/0/0",
    "mix_mono":
        "99.95/5/0 100/50.8/0 94.5/0/0 53.5/0/0 "
        "7.09/0/0 99.85/0/0 99.8/82.4/0 100/82.2/0",
    "mix_mono_pr":
        "100/99.2/86.7 100/100/99.7 15.3/0/0 0/0/0 "
        "100/100/100 100/53/0.5 0/0/0 89.6/77.6/42.1",
    "r_mono":
        "100/100/100 100/100/99.9 64.3/0/0 72.8/0/0 "
        "100/100/99.9 0/0/0 100/100/99.1 100/100/99",
    "mix_r_mono":
        "31.1/0/0 100/66.3/0 99.8/0/0 41.4/0/0 "
        "98.1/0/0 23.4/0/0 99.85/70.5/0 100/83.8/0",
    "mix_r_mono_pr":
        "0/0/0 100/100/100 39.2/0/0 4.3/0/0 "
        "100/90.8/51.2 100/100/100 0/0/0 40/0/0",
}
"""RC, tables 2, 4 and 7: by attender, a word for each task."""
EDIT_DISTANCE = {
    "content":
        "6.1/21/90.7 6.8/21.9/91.7 1.4/4.6/6.5 1/3.8/5.4 "
        "8/53.4/249.2 8.1/53.7/249.3 4/19.7/90.1 4.3/20.1/90.4",
    "relative":
        "0/0/0 4.4/20.7/90.2 0/0/0 0.3/4.9/6.3 "
        "3.7/31.5/160 17.9/60.8/250.7 0.5/13.7/73.8 3.2/18.4/88.3",
    "loc":
        "0/14.2/82 1.7/16.7/84.9 1.2/3/5.7 1.3/3.9/6.2 "
        "0.8/56.5/233 2.7/39.1/226.1 0/0.5/45.8 0/7.8/72.5",
    "bi_relative":
        "0/0/0 0/0/0 0/0/0 0/0/0 "
        "4.5/32.4/159.6 4.2/31.9/159.1 0.7/14.4/74 0.6/13.9/74",
    "one_step":
        "0/0/0 0/0/0 0/0/0 0/0/0 "
        "0/0/0 0/0/0 3/16.6/86 3.1/17.2/85.7",
    "mono":
        "0/0/0 0/0/0 0/0/0.9 0.7/3/4.9 "
        "0/0/0 0/0/0 0/0/0 0/0/0",
}
"""RC, table 9, likewise."""
SCAN = {
    "content": (17.61, 4.07),
    "relative": (19.21, 5.52),
    "mix_loc": (20.74, 5.69),
    "bi_relative": (8.41, 1.21),
    "mix_one_step": (29.51, 9.46),
    "mix_mono": (21.08, 7.17),
}
"""RC, table 3, the SCAN column: mean and standard deviation."""
ATTENTION_LOSS = {
    "scaled_dot": (5.3, 6.3, 8.1, 10.2, 12.6, 15.4),
    "multiplicative": (3.1, 4.6, 6.3, 7.9, 9.9, 12.4),
    "additive": (3.1, 8.4, 15.6, 22.2, 28.7, 34.8),
    "transformer": (2.8, 3.5, 6.1, 9.1, 11.7, 13.9),
    "transformer_xl": (3.0, 3.9, 5.3, 7.1, 9.1, 11.4),
    "mix": (2.1, 2.2, 2.9, 4.1, 5.3, 6.7),
}
"""DU, table 3: by attender, at the lengths ``LONGER``."""
# fmt: on


def _numbers() -> dict[Place, float]:
    found: dict[Place, float] = {}
    for measure, table in (("accuracy", ACCURACY), ("edit_distance", EDIT_DISTANCE)):
        for row, text in table.items():
            for (task, lengths), cells in zip(TASKS.items(), text.split(), strict=True):
                for length, cell in zip(lengths, cells.split("/"), strict=True):
                    found[measure, task, row, length] = float(cell)
    for row, (mean, _) in SCAN.items():
        found["accuracy", "scan", row, SCAN_LENGTH] = mean
    for row, losses in ATTENTION_LOSS.items():
        for length, loss in zip(LONGER, losses, strict=True):
            found["attention_loss", MEAN, row, length] = loss
    # DU, sections 7.1 and 7.2
    for task in ("lookup", "reverse_lookup", "noisy_lookup_single"):
        for row in ("transformer", "mix"):
            found["accuracy", task, row, INTERPOLATION] = 100.0
    found["accuracy", "lookup", "location", INTERPOLATION] = 100.0
    found["accuracy", "lookup", "transformer", INTERPOLATION + 3] = 0.0
    return found


NUMBERS = _numbers()


def spread(task: str, row: str) -> float:
    """The standard deviation that the paper prints with a number; 0 where it prints none."""
    return SCAN[row][1] if task == "scan" and row in SCAN else 0.0
