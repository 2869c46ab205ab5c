"""The figures of the specification, alignment-and-statistics.md sections 4.1, 4.2 and 4.5."""

from __future__ import annotations

from math import nan
from typing import Final

from distributions import Setting

# 4.1: A/A family-wise false alarms of the paper's rules, R = 2000.
RULES_REPEATS: Final = 2000
RULES_COLUMNS: Final = (
    "avg t1=1.5", "avg t1=1.0", "a1 t2=1.25", "a1 1.5", "a1 2", "a1 3", "a2 t2=1.5", "MW-Holm .01",
)  # fmt: skip
RULES: Final = {
    Setting("normal cv .1", 100, 10): (0.000, 0.014, 0.916, 0.534, 0.013, 0.000, 0.069, 0.009),
    Setting("lognormal .3", 100, 10): (0.002, 0.053, 0.950, 0.628, 0.041, 0.000, 0.182, 0.007),
    Setting("lognormal 1", 100, 10): (0.074, 0.232, 0.961, 0.826, 0.246, 0.003, 0.827, 0.006),
    Setting("rare states", 100, 10): (0.112, 0.241, 0.965, 0.869, 0.555, 0.333, 0.797, 0.056),
    Setting("heavy tail", 100, 10): (0.139, 0.318, 0.962, 0.792, 0.210, 0.003, 0.933, 0.005),
    Setting("3 types mixed", 100, 10): (0.003, 0.026, 0.513, 0.321, 0.066, 0.001, 0.301, 0.005),
    Setting("normal cv .1", 100, 100): (0.000, 0.000, 0.381, 0.007, 0.000, 0.000, 0.000, 0.013),
    Setting("lognormal .3", 100, 100): (0.000, 0.000, 0.477, 0.021, 0.000, 0.000, 0.000, 0.006),
    Setting("lognormal 1", 100, 100): (0.000, 0.002, 0.751, 0.166, 0.001, 0.000, 0.132, 0.011),
    Setting("rare states", 100, 100): (0.132, 0.153, 0.895, 0.645, 0.357, 0.203, 0.624, 0.010),
    Setting("heavy tail", 100, 100): (0.001, 0.003, 0.685, 0.125, 0.001, 0.000, 0.405, 0.008),
    Setting("lognormal 1", 30, 10): (0.198, 0.416, 0.976, 0.811, 0.362, 0.018, 0.762, 0.006),
    Setting("rare states", 300, 300): (0.004, 0.005, 0.665, 0.360, 0.135, 0.040, 0.355, 0.006),
}

# 4.1: the t2 that Fisher's exact test at .001 amounts to; nan where none does.
T2_SHARES: Final = (0.5, 0.35, 0.1, 0.02)
T2: Final = {
    (100, 10): (nan, 2.86, 6.0, 20.0),
    (100, 30): (1.67, 2.0, 4.0, 11.7),
    (100, 100): (1.46, 1.66, 2.8, 7.5),
    (300, 300): (1.26, 1.37, 1.93, 3.83),
}

# 4.2: the gate; A/A R = 500, power R = 120, B = 599, level .01, floor 5 %.
GATE_REPEATS: Final = 500
POWER_REPEATS: Final = 120
GATE_COLUMNS: Final = (
    "A/A p", "A/A gate", "+50 % one state", "x2 one state", "+1x total in 20 %",
    "new state p", "new state gate", "paper avg +50 %", "paper avg 20 %",
)  # fmt: skip
GATE: Final = {
    Setting("normal cv .1", 100, 10): (0.008, 0.000, 1.00, 1.00, 0.55, 1.00, 0.68, 1.00, 0.86),
    Setting("lognormal .3", 100, 10): (0.010, 0.002, 0.62, 1.00, 0.51, 1.00, 0.69, 0.60, 0.89),
    Setting("lognormal 1", 100, 10): (0.012, 0.010, 0.03, 0.11, 0.15, 1.00, 0.63, 0.10, 0.57),
    Setting("rare states", 100, 10): (0.006, 0.004, 0.01, 0.04, 0.15, 1.00, 0.67, 0.15, 0.73),
    Setting("heavy tail", 100, 10): (0.004, 0.000, 0.06, 0.43, 0.28, 1.00, 0.71, 0.23, 0.70),
    Setting("3 types mixed", 100, 10): (nan,) * 9,
    Setting("lognormal .3", 100, 30): (0.006, 0.002, nan, 1.00, 0.83, nan, nan, nan, nan),
    Setting("lognormal 1", 100, 30): (0.002, 0.002, nan, 0.48, 0.45, nan, nan, nan, nan),
    Setting("rare states", 100, 30): (0.008, 0.002, nan, 0.13, 0.40, nan, nan, nan, nan),
    Setting("heavy tail", 100, 30): (0.008, 0.002, nan, 0.99, 0.56, nan, nan, nan, nan),
    Setting("normal cv .1", 100, 100): (0.016, 0.000, 1.00, 1.00, 1.00, 1.00, 0.97, 1.00, 1.00),
    Setting("lognormal .3", 100, 100): (0.006, 0.000, 1.00, 1.00, 0.98, 1.00, 0.94, 0.70, 1.00),
    Setting("lognormal 1", 100, 100): (0.012, 0.008, 0.26, 0.98, 0.88, 1.00, 0.83, 0.00, 0.55),
    Setting("rare states", 100, 100): (0.004, 0.000, 0.04, 0.36, 0.93, 1.00, 0.93, 0.17, 0.90),
    Setting("heavy tail", 100, 100): (0.002, 0.000, 0.92, 1.00, 0.97, 1.00, 0.91, 0.05, 0.85),
    Setting("lognormal 1", 30, 10): (nan,) * 9,
    Setting("rare states", 300, 300): (nan,) * 9,
}

# 4.5: healthy executions above mean + k * std in some state; repeats are not told.
OUTLIER_REPEATS: Final = 200
OUTLIER_FACTORS: Final = (1.5, 2.0, 3.0, 4.0, 6.0)
OUTLIERS: Final = {
    Setting("lognormal .3", 10, 30): (0.69, 0.50, 0.23, 0.10, 0.02),
    Setting("lognormal .3", 30, 30): (0.61, 0.40, 0.14, 0.04, 0.004),
    Setting("lognormal .3", 100, 30): (0.575, 0.36, 0.11, 0.03, 0.002),
    Setting("normal cv .1", 100, 30): (0.51, 0.22, 0.017, 0.001, 0.0),
    Setting("lognormal 1", 100, 30): (0.51, 0.39, 0.23, 0.14, 0.06),
    Setting("heavy tail", 100, 30): (0.41, 0.31, 0.20, 0.14, 0.09),
}
