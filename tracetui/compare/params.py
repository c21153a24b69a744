"""Every numeric constant of a comparison: its quantity, its unit and the experiment that set it.

Experiments, as the comments name them:

- simulated: AR(1) runs with known changes, `python -m tests.bench.pairs`; figures in `tracetui help gating`
- recorded: two models recorded in turn on quiet machines, `python -m tests.bench.repeats`; figures there too
- loaded: the same models recorded while a compiler and a simulation ran beside them
- chosen: not measured; chosen

SD is one standard deviation of the logarithm of a time, so that 0.1 is about 10 %. DF: degrees of freedom.
"""

from typing import Final

# Statistics

# Of several tests
MIN_ROWS: Final = 5  # rows from which something can be common to them; simulated
MIN_POINTS: Final = 3  # points of a line, steps or rows of a variance: one more than it has parameters
FLOAT_NOISE: Final = 1e-9  # below which a weight, a spread or a difference is float noise
MAX_DF: Final = 1e6  # DF that stand for a known variance; any large number
CAUSE_ALPHA: Final = 0.01  # significance level of a moved metric; chosen
TOTAL_ALPHA_SHARE: Final = 0.2  # share of alpha spent on the question whether the total changed; chosen

# Other programs on the CPU
CONTENDED_CORES: Final = 0.2  # cores taken from the run in a step that is excluded; chosen
CONTENDED_RUN_SD: Final = 0.7  # SD of runs beside other programs, a factor of two; loaded

# One run per side; the autocorrelation of the steps is that of AR(1)
MAX_AUTOCORRELATION: Final = 0.98  # largest lag-1 autocorrelation that is assumed; chosen
SHIFT_MARGIN: Final = 1.4  # factor by which shifts of rows that move together may be too close; simulated
MAX_SHIFT_Z: Final = 1.3  # clips shifts, in standard errors, so that 4 in 10 rows may change; simulated
SINGLE_RUN_STATE_SD: Final = 0.32  # SD of a row's state in a single run, in SDs of its steps; recorded
FEW_STEPS_SD: Final = 0.2  # SD of all rows together where steps are too few to show it; chosen

# Repeated runs
POOLED_SD_PRIOR_DF: Final = 3.0  # DF of the prior that a row's SD between runs is shrunk to; chosen
RESPONSE_SD: Final = 1.0  # SD of how a contrast follows the pace of its step: −1 is not at all; recorded
VARIANCE_PASSES: Final = 4  # reweighted fits until variances and responses settle; chosen

# How many recordings are needed
MIN_RUNS_PER_SIDE: Final = 2  # recordings per side before a sequential comparison may stop
MAX_RUNS_PER_SIDE: Final = 50  # recordings per side beyond which none are recommended; chosen
POWER: Final = 0.8  # probability of a decision that a recommended number of recordings has; convention

# Causes and slopes
CLOCK_POWER_SD: Final = 0.25  # prior SD of the power of a clock that time follows, around −1; chosen
LOAD_EFFECT_SD: Final = 2.0  # prior SD of the log time that a full load costs; chosen
EFFECT_LIMIT_SE: Final = 2.0  # standard errors above a run's own estimate that a load may count by; chosen
SLOPE_CHANGE_SE: Final = 4.0  # standard errors of a changed slope: steps are autocorrelated; chosen

# Which runs, rows and steps belong together

MIN_COMPARABILITY: Final = 0.5  # score from which two runs count as comparable; chosen
INCOMPARABLE_FACTOR: Final = 0.4  # of the score, for a reason that alone makes runs incomparable; chosen
DOUBT_FACTOR: Final = 0.9  # of the score, for a reason worth saying: seven make runs incomparable; chosen
STEP_COUNT_RATIO: Final = 5  # ratio of step counts from which the steps may be of another kind; chosen
SPARSE_CELLS_PER_TIMED_ROW: Final = 2  # rows × steps per timed row above which sums are kept sparse; speed
MIN_STEM_LETTERS: Final = 12  # letters left of a truncated name that may still be completed; chosen
WARM_UP_RATIO: Final = 1.5  # a leading step this many times the median of those after it is warm-up; chosen
MAX_WARM_UP_SHARE: Final = 0.1  # largest share of the steps that may count as warm-up; chosen
STEP_SIZE_RATIO: Final = 1.1  # ratio of average sizes from which steps that vary are other work; chosen

# What is said about a comparison

MOST: Final = 0.8  # share that stands for the whole: of rows, of matched time, of a change; chosen
NEGLIGIBLE: Final = 0.01  # share of a time or a change, or a change, that is not worth a word; chosen
LEAST_OF_ONE_SIDE: Final = 0.001  # share of a step from which rows of one side only are named; chosen
MIN_CHANGE: Final = 0.05  # share by which a clock, bytes, launches or a slope must differ to count; chosen
SHORT_WAIT_SHARE: Final = 0.1  # share of a step that a wait in one place must exceed to be judged; chosen
MIN_CORES_CHANGE: Final = 0.5  # cores in use that a program must have more or fewer to count; chosen
MIN_PRESSURE_CHANGE_PCT: Final = 15.0  # percentage points of pressure that are reported; chosen
LARGEST_CHANGE_PCT: Final = 1000  # end of an interval beyond which its digits say nothing; chosen
NEARLY_DECIDED_P: Final = 0.2  # adjusted p below which the headline names an undecided row; chosen
MAX_NAMED: Final = 5  # things that a list names, or lines of one kind; chosen
MAX_EXAMPLES: Final = 3  # things that stand in a sentence for many; chosen
TAIL_RATIO: Final = 1.5  # if the longest is this many times as long; chosen
